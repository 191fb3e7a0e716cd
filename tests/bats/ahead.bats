# Versions that leave while contributions still come (design.md, D51): a worker that was
# written from falcon-protocol(7), tests/client/holds.py, keeps a last block until the first
# blocks of what it makes have come.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	/usr/bin/python3 -c 'import cryptography' 2>/dev/null ||
		skip "python3-cryptography is not installed"
	tiny "$BATS_TEST_TMPDIR/tiny"
	# 69 blocks, of images of 64 x 64: more than a version that is made at once.
	printf 'input 4096\ndense 68\n' >"$BATS_TEST_TMPDIR/tiny/tiny.model"
	{
		printf '\0\0\010\003\0\0\0\020\0\0\0\100\0\0\0\100'
		bytes 65536 abcdefghijklmnopqrstu
	} >"$BATS_TEST_TMPDIR/tiny/images"
	{
		printf '\0\0\010\001\0\0\0\020'
		printf '\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7'
	} >"$BATS_TEST_TMPDIR/tiny/labels"
	job=(--set job.epochs=1 --set job.eval=never --set sync.scheme=bsp
		--set data.samples=6 --set batch.size=2 --set batch.task=1
		--set optimizer.kind=momentum --set optimizer.momentum=0.9 --set optimizer.lr=1e-6
		"$BATS_TEST_TMPDIR/tiny/tiny.job")
	export PYTHONDONTWRITEBYTECODE=1
}

# client NAME [TIMES [dies]]: it works, and holds back where TIMES is given; its process id
# is in $pid.
client() {
	local name=$1 program=client.py
	shift
	[ $# = 0 ] || program=holds.py
	start "$name" /usr/bin/python3 "$root/tests/client/$program" "$keys/work.key" \
		"$ready" "$@"
}

@test "who holds nothing back makes the model" {
	serve --set batch.task=2
	client one
	wait "$pid" || { cat ./*.err; return 1; }
	judge one
	again
	serve # tasks of one sample
	client two
	wait "$pid" || { cat ./*.err; return 1; }
	judge two
}

@test "blocks of the next version come before the last one of this was pushed" {
	serve --set batch.task=2 # who is alone may need what nobody else has shown
	client one 2
	wait "$pid" || { cat ./*.err; return 1; }
	same "held" "$(cat one.out)" "the job is done: held 2"
	judge one
}

@test "of two, one holds back" {
	serve -w 2
	client one 2
	client two
	wait "$pid" || { cat ./*.err; return 1; }
	judge two
	same "held" "$(cat one.out)" "the job is done: held 2"
}

@test "who dies then is filled, on a version that is behind what is being made" {
	serve -w 2
	client one 2 dies
	local one=$pid
	client two
	local two=$pid
	wait "$one" || { cat ./*.err; return 1; }
	same "held" "$(cat one.out)" "held 2"
	wait "$two" || { cat ./*.err; return 1; }
	judge two
}
