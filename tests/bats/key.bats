#!/usr/bin/env bats
# falcon-key: files, modes, refusals, and the examples of its man page.

setup() {
	bin=${FALCON_BIN:-$BATS_TEST_DIRNAME/../../build/release}
	PATH=$bin:$PATH
	man=$BATS_TEST_DIRNAME/../../man/falcon-key.1
	cd "$BATS_TEST_TMPDIR" || return 1
	umask 077
}

# The third field of the line of $2 in the keyring or key file $1.
secret_of() {
	awk -v name="$2" '$1 == name { print $3 }' "$1"
}

# belongs FILE NAME: whether the client key in the file is that of the name in lab/keyring.
belongs() {
	case $(secret_of "$1" "$2") in
	secret:*) [ "public:$(falcon-key public "$1")" = "$(secret_of lab/keyring "$2")" ] ;;
	*) [ "$(secret_of "$1" "$2")" = "$(secret_of lab/keyring "$2")" ] ;;
	esac
}

@test "init makes a keyring and a key for each role, for the owner alone" {
	umask 000
	falcon-key init lab
	[ "$(stat -c %a lab)" = 700 ]
	[ "$(stat -c '%a %n' lab/* | sort)" = "600 lab/all.key
600 lab/control.key
600 lab/keyring
600 lab/observe.key
600 lab/shard.key
600 lab/work.key" ]
	for role in observe work shard control all; do
		[ "$(cut -d' ' -f1,2 "lab/$role.key")" = "$role $role" ]
		[[ $(secret_of "lab/$role.key" $role) = secret:* ]]
		belongs "lab/$role.key" $role
	done
	[ "$(cut -d' ' -f4 lab/*.key | sort -u | wc -l)" -eq 1 ]
	[ "$(cut -d' ' -f3 lab/keyring | sort -u | wc -l)" -eq 6 ]
	[ "$(cut -d' ' -f2- lab/keyring | grep -c ' public:')" -eq 5 ]
	mv lab pairs
	falcon-key init --shared lab
	belongs lab/work.key work
	[ "$(grep -c public: lab/keyring || :)" -eq 0 ]
}

@test "init refuses what is there and leaves nothing behind" {
	mkdir lab
	run falcon-key init lab
	echo "$status $output"
	[ "$status" -eq 1 ]
	[ "$output" = "falcon-key: lab: already exists" ]
	[ -z "$(ls -A lab)" ]
	run falcon-key init none/lab
	echo "$status $output"
	[ "$status" -eq 1 ]
	[ "$output" = "falcon-key: none/lab: No such file or directory" ]
	[ "$(ls -A)" = lab ]
}

# no_file ARGUMENT...: falcon-key, where no file may grow: the first write fails.  A
# sanitizer's own, before it begins, is not to end it.
no_file() (
	[[ $bin != */tsan ]] || trap '' XFSZ
	ulimit -f 0
	exec falcon-key "$@"
)

@test "init that cannot write its files leaves nothing behind" {
	run no_file init lab
	echo "$status $output"
	[ "$status" -eq 1 ]
	[ "$output" = "falcon-key: lab: File too large" ]
	[ -z "$(ls -A)" ]
}

@test "show names keys by their fingerprints and shows no secret" {
	falcon-key init lab
	for file in lab/keyring lab/work.key; do
		run falcon-key show "$file"
		echo "$output"
		[ "$status" -eq 0 ]
		while read -r _ _ key public; do
			[ -n "$key" ]
			[[ $output != *"${key:0:8}"* ]]
			# Nor the public key, which strangers need not know.
			[ -z "$public" ] || [[ $output != *"${public:0:8}"* ]]
		done <"$file"
	done
	# The coordinator and the key have the same fingerprints in both files.
	for name in coordinator work; do
		a=$(falcon-key show lab/keyring | awk -v n=$name '$1 == n { print $4 }')
		b=$(falcon-key show - <lab/work.key | awk -v n=$name '$1 == n { print $4 }')
		echo "$name: $a $b"
		[ ${#a} -eq 32 ]
		[ "$a" = "$b" ]
	done
}

@test "the fingerprint is that of b2sum" {
	falcon-key init lab
	want=$(falcon-key public lab/work.key | base64 -d | b2sum -l 256 | cut -c1-32)
	[ "$(falcon-key show lab/work.key | awk '$1 == "work" { print $4 }')" = "$want" ]
	# Of a shared key, which is a secret, it is the digest of nothing else.
	falcon-key add --shared -K lab/keyring old
	want=$(secret_of lab/old.key old | base64 -d | /usr/bin/python3 -c 'import hashlib, sys
print(hashlib.blake2b(sys.stdin.buffer.read(), digest_size=32, person=b"falcon shared").hexdigest()[:32])')
	[ "$(falcon-key show lab/old.key | awk '$1 == "old" { print $4 }')" = "$want" ]
}

@test "add makes a key for one worker: its file beside the keyring, its line in it" {
	falcon-key init lab
	before=$(cat lab/keyring)
	umask 022
	run falcon-key add --keyring lab/keyring vm1
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	[ "$(cut -d' ' -f1,2 lab/vm1.key)" = "vm1 work" ]
	[[ $(secret_of lab/vm1.key vm1) = secret:* ]]
	belongs lab/vm1.key vm1
	[ "$(cut -d' ' -f4 lab/vm1.key)" = "$(cut -d' ' -f4 lab/work.key)" ]
	[ "$(head -n 6 lab/keyring)" = "$before" ]
	[ "$(stat -c %a lab/keyring lab/vm1.key | sort -u)" = 600 ]
	(cd lab && falcon-key add -K keyring --shared -r control -e 2031-12-31 boss)
	[ "$(secret_of lab/boss.key boss)" = "$(secret_of lab/keyring boss)" ]
	[ "$(cut -d' ' -f1,2 lab/boss.key)" = "boss control" ]
	[ "$(tail -n 1 lab/keyring | cut -d' ' -f1,2,4)" = "boss control 2031-12-31" ]
	[ "$(wc -l <lab/keyring)" -eq 8 ]
	[ "$(find lab -type f | wc -l)" -eq 8 ]
}

@test "add overwrites nothing and leaves nothing half done" {
	falcon-key init lab
	falcon-key add -K lab/keyring vm1
	echo mine >lab/vm2.key
	cp -r lab before
	run falcon-key add -K lab/keyring vm1
	echo "$status $output"
	[ "$status" -eq 2 ]
	[ "$output" = "falcon-key: lab/keyring: has a key 'vm1' already" ]
	run falcon-key add -K lab/keyring vm2
	echo "$status $output"
	[ "$status" -eq 2 ]
	[ "$output" = "falcon-key: lab/vm2.key: already exists" ]
	run no_file add -K lab/keyring vm3
	echo "$status $output"
	[ "$status" -eq 1 ]
	[ "$output" = "falcon-key: lab/vm3.key: File too large" ]
	diff -r before lab
	# Room for the key's file, but not for the keyring.
	for i in 1 2 3 4 5 6 7 8 9; do
		printf '#%0150d\n' "$i"
	done >>lab/keyring
	cp lab/keyring before/
	run bash -c 'ulimit -f 1; exec falcon-key add -K lab/keyring vm3'
	echo "$status $output"
	[ "$status" -eq 1 ]
	[[ $output = "falcon-key: "*"lab/keyring: File too large" ]]
	diff -r before lab
}

@test "add at the same time loses no key" {
	falcon-key init lab
	for i in 1 2 3 4 5 6 7 8; do
		falcon-key add -K lab/keyring "n$i" 3>&- &
		falcon-key add -K lab/keyring twice 3>&- 2>>refused &
	done
	wait
	for i in 1 2 3 4 5 6 7 8; do
		belongs "lab/n$i.key" "n$i"
	done
	belongs lab/twice.key twice
	[ "$(wc -l <lab/keyring)" -eq 15 ]
	[ "$(grep -c "has a key 'twice' already" refused)" -eq 7 ]
}

@test "new prints a client key and adds it to the keyring" {
	falcon-key init lab
	before=$(cat lab/keyring)
	falcon-key new --keyring lab/keyring --role observe --name me >me.key
	[ "$(cut -d' ' -f1,2 me.key)" = "me observe" ]
	belongs me.key me
	[ "$(cut -d' ' -f4 me.key)" = "$(cut -d' ' -f4 lab/work.key)" ]
	[ "$(head -n 6 lab/keyring)" = "$before" ]
	[ "$(wc -l <lab/keyring)" -eq 7 ]
	[ "$(stat -c %a lab/keyring)" = 600 ]
	[ "$(find lab -type f | wc -l)" -eq 6 ]
}

@test "new gives a name of its own and keeps mode, comments and links" {
	falcon-key init lab
	printf '# mine, without a newline' >>lab/keyring
	chmod 400 lab/keyring
	ln -s lab/keyring ring
	falcon-key new -K ring >a.key 2>/dev/null
	[ -L ring ]
	[ "$(stat -c %a lab/keyring)" = 400 ]
	grep -q '^# mine, without a newline$' lab/keyring
	name=$(cut -d' ' -f1 a.key)
	print=$(falcon-key show a.key | awk -v n="$name" '$1 == n { print $4 }')
	echo "$name $print"
	[ "$name" = "work-${print:0:8}" ]
}

@test "new takes two keys of a name, not three" {
	falcon-key init lab
	falcon-key new -K lab/keyring -n tower >1.key
	falcon-key new -K lab/keyring -n tower >2.key
	cp lab/keyring before
	run falcon-key new -K lab/keyring -n tower
	echo "$status $output"
	[ "$status" -eq 1 ]
	[[ $output = *"lab/keyring:9: a third key for one name 'tower'" ]]
	cmp before lab/keyring
}

@test "new at the same time loses no key" {
	falcon-key init lab
	for i in 1 2 3 4 5 6 7 8; do
		falcon-key new -K lab/keyring -n "n$i" >"$i.key" 3>&- &
	done
	wait
	for i in 1 2 3 4 5 6 7 8; do
		belongs "$i.key" "n$i"
	done
	[ "$(wc -l <lab/keyring)" -eq 14 ]
}

@test "a client makes its own key: the keyring gets the public half, by hand" {
	falcon-key init lab
	cp -r lab before
	coordinator=$(falcon-key public lab/keyring)
	[ "$coordinator" = "$(cut -d' ' -f4 lab/work.key)" ]
	falcon-key new -c "$coordinator" -r control -n boss >boss.key
	[ "$(cut -d' ' -f1,2,4 boss.key)" = "boss control $coordinator" ]
	diff -r before lab
	public=$(falcon-key public - <boss.key)
	run falcon-key add -K lab/keyring -r control -e 2031-12-31 boss "$public"
	same_output 0 ""
	[ "$(tail -n 1 lab/keyring)" = "boss control public:$public 2031-12-31" ]
	[ "$(find lab -type f | wc -l)" -eq 6 ]
	# The same fingerprint on both sides, and no word of the kind of shared keys.
	[ "$(falcon-key show lab/keyring | awk '$1 == "boss" { print $4, NF }')" = \
		"$(falcon-key show boss.key | awk '$1 == "boss" { print $4, NF }')" ]
	[ "$(falcon-key show lab/keyring | grep -c ' shared$')" -eq 0 ]
	# A second one of the name is for rotation; twice the same is a mistake.
	run falcon-key add -K lab/keyring boss "$public"
	same_output 2 "falcon-key: lab/keyring: has this key already, as 'boss'"
	falcon-key new -c "$coordinator" -n boss >second.key
	falcon-key add -K lab/keyring boss "$(falcon-key public second.key)"
	[ "$(grep -c '^boss ' lab/keyring)" -eq 2 ]
	falcon-key init --shared old
	run falcon-key public old/work.key
	same_output 2 "falcon-key: old/work.key: a shared key has no public half"
}

@test "add takes a key for one name, and none that is nobody's" {
	falcon-key init lab
	coordinator=$(falcon-key public lab/keyring)
	falcon-key new -c "$coordinator" -n boss >boss.key
	public=$(falcon-key public boss.key)
	falcon-key add -K lab/keyring boss "$public"
	cp lab/keyring before
	run falcon-key add -K lab/keyring -r observe other "$public"
	same_output 2 "falcon-key: lab/keyring: has this key already, as 'boss'"
	run falcon-key add -K lab/keyring boss "$coordinator"
	same_output 2 "falcon-key: lab/keyring: this key is the coordinator's"
	run falcon-key add -K lab/keyring other "${public:1}"
	same_output 2 "falcon-key: add: PUBLIC: not base64 of 32 bytes"
	# A point of small order is no key.
	low=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
	run falcon-key add -K lab/keyring low $low
	same_output 2 "falcon-key: add: PUBLIC: not a key: a point of small order"
	run falcon-key new -c $low
	same_output 2 "falcon-key: --coordinator: not a key: a point of small order"
	cmp before lab/keyring
}

@test "revoke takes out a name's lines, or that of a fingerprint, and nothing else" {
	falcon-key init lab
	printf '# ours\n\n' >>lab/keyring
	falcon-key new -K lab/keyring -n tower -e 2031-12-31 >1.key
	cp lab/keyring one
	falcon-key new -K lab/keyring -n tower >2.key
	falcon-key add -K lab/keyring towers
	cp lab/keyring before
	revoked="falcon-key: lab/keyring: 'tower' is revoked; a running falcon-ps needs SIGHUP to read the keyring again"
	run falcon-key revoke -K lab/keyring tower "$(falcon-key show 2.key | awk '$1 == "tower" { print $4 }')"
	same_output 0 "$revoked"
	sed '/^towers /d' lab/keyring | cmp - one
	cp before lab/keyring
	run falcon-key revoke -K lab/keyring tower
	same_output 0 "$revoked"
	grep -v '^tower ' before | cmp - lab/keyring
	[ "$(stat -c %a lab/keyring)" = 600 ]
	cp lab/keyring before
	run falcon-key revoke -K lab/keyring tower
	same_output 1 "falcon-key: lab/keyring: has no key 'tower'"
	run falcon-key revoke -K lab/keyring towers 0123456789abcdef
	same_output 1 "falcon-key: lab/keyring: has no key 'towers' of fingerprint 0123456789abcdef"
	# The coordinator's own key is no client's.
	run falcon-key revoke -K lab/keyring coordinator
	same_output 1 "falcon-key: lab/keyring: has no key 'coordinator'"
	cmp before lab/keyring
}

# same_output STATUS TEXT: of what ran last.
same_output() {
	echo "$status $output"
	[ "$status" -eq "$1" ]
	[ "$output" = "$2" ]
}

@test "a key that could not be printed is not added" {
	falcon-key init lab
	cp lab/keyring before
	run bash -c 'falcon-key new -K lab/keyring >/dev/full'
	echo "$status $output"
	[ "$status" -eq 1 ]
	[ "$output" = "falcon-key: standard output: No space left on device" ]
	cmp before lab/keyring
	[ "$(find lab -type f | wc -l)" -eq 6 ]
}

@test "expiry is shown, and what has expired" {
	falcon-key init lab
	falcon-key new -K lab/keyring -n late -e 9999-12-31 >/dev/null
	falcon-key new -K lab/keyring -n old -e 2999-02-03 >/dev/null
	falcon-key new -K lab/keyring -n soon -e 2999-02-03T04:05:06Z >/dev/null
	sed -i 's/ 2999/ 2001/' lab/keyring
	cp lab/keyring before
	for end in 2001-02-03 "$(date -ud yesterday +%Y-%m-%d)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"; do
		run falcon-key add -K lab/keyring -e "$end" gone
		echo "$status $output"
		[ "$status" -eq 2 ]
		[[ $output = "falcon-key: --expires: '$end' is over: it is 20"*"Z here" ]]
		run falcon-key new -K lab/keyring -e "$end"
		[ "$status" -eq 2 ]
	done
	cmp before lab/keyring
	[ ! -e lab/gone.key ]
	falcon-key new -K lab/keyring -n today -e "$(date -u +%Y-%m-%d)" >/dev/null
	run falcon-key show lab/keyring
	echo "$output"
	[[ $output =~ old\ +work\ +2001-02-03\ +[0-9a-f]{32}\ expired ]]
	[[ $output =~ soon\ +work\ +2001-02-03T04:05:06Z\ +[0-9a-f]{32}\ expired ]]
	[[ $output =~ late\ +work\ +9999-12-31\ +[0-9a-f]{32}$'\n' ]]
}

@test "a key file that others can read is refused" {
	falcon-key init lab
	for mode in 640 604; do
		chmod $mode lab/work.key
		run falcon-key show lab/work.key
		echo "$output"
		[ "$status" -eq 77 ]
		[ "$output" = "falcon-key: lab/work.key: others can read this secret: chmod go= 'lab/work.key'" ]
	done
	run bash -c 'umask 022; falcon-key new -K lab/keyring >open.key'
	echo "$output"
	[[ $output = "falcon-key: standard output: warning: "* ]]
	chmod 600 lab/work.key
	run falcon-key show lab/work.key
	[[ $output != *warning* ]]
}

@test "bad key files are refused with file and line, and without the key" {
	falcon-key init lab
	key=$(secret_of lab/work.key work)
	sed 's/^work work/work wrok/' lab/keyring >bad
	run falcon-key show bad
	echo "$status $output"
	[ "$status" -eq 2 ]
	[ "$output" = "falcon-key: bad:3: role is not observe, work, shard, control or all 'wrok'" ]
	sed 's/^work work /work work x/' lab/keyring >bad
	for command in "show bad" "new -K bad"; do
		# shellcheck disable=SC2086 # several words
		run falcon-key $command
		echo "$status $output"
		[ "$status" -eq 2 ]
		[[ $output = *"bad:3: key is not base64 of 32 bytes" ]]
		[[ $output != *"${key:4:8}"* ]]
	done
	head -c 5000000 /dev/zero >bad
	run falcon-key show bad
	echo "$status $output"
	[ "$status" -eq 2 ]
	[ "$output" = "falcon-key: bad: more than 4194304 bytes" ]
}

@test "usage errors are one line and status 2" {
	falcon-key init lab
	falcon-key init --shared old
	refused=0
	while read -r args; do
		# shellcheck disable=SC2086 # several words
		run falcon-key $args
		echo "$args: $status $output"
		[ "$status" -eq 2 ]
		[ "${#lines[@]}" -eq 1 ]
		[[ $output = "falcon-key: "* ]]
		refused=$((refused + 1))
	done <<-END

		init
		init a b
		init -r work a
		show
		show a b
		show -n x lab/keyring
		add
		add -K lab/keyring
		add vm
		add -K lab/keyring a b
		add -K lab/keyring a/b
		add -K lab/keyring -n a b
		add -K lab/keyring a b c
		add -K lab/keyring --shared a AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
		add -K lab/keyring -c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= a
		add -K lab/keyring -r boss a
		new
		new more -K lab/keyring
		new -c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE
		new -c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= -K lab/keyring
		new -c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= --shared
		new -c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= -e 2030-01-01
		public
		public old/work.key
		public -n x lab/keyring
		new -K lab/keyring -r boss
		new -K lab/keyring -r self
		new -K lab/keyring -n a/b
		new -K lab/keyring -e 2030-02-30
		new -K lab/keyring -e 2030-02-28T24:00:00Z
		revoke
		revoke work
		revoke -K lab/keyring
		revoke -K lab/keyring a b c
		revoke -K lab/keyring -r work work
		pair
		pair -k a b
		sign
		sign lab
		sign -k lab/work.key
		sign -K lab/keyring lab
		verify -k lab/work.key
		verify a
		show -k lab/work.key lab/work.key
		new -K lab/keyring -K lab/keyring
		new -K lab/keyring -r work --role work
		new -K
		--rolle
		make
	END
	echo "$refused"
	[ "$refused" -eq 50 ]
	[ "$(wc -l <lab/keyring)" -eq 6 ]
	[ ! -e a ]
}

@test "--help and --version" {
	for option in "-?" --help; do
		run falcon-key "$option"
		[ "$status" -eq 0 ]
		[[ $output = "Usage: falcon-key "*--keyring* ]]
	done
	run falcon-key --version
	[ "$status" -eq 0 ]
	[[ $output =~ ^falcon-key\ [0-9]+\.[0-9]+\.[0-9]+(-g[0-9a-f]+\+?)?$ ]]
}

@test "the examples of the man page" {
	ssh() { # of the third example: another machine is another directory
		mkdir -p "$1"
		(cd "$1" && bash -c "$2")
	}
	awk '/^\.Sh/ { on = /EXAMPLES/ } /^\.Ed/ { code = 0 }
		on && code { print } /^\.Bd.*indent/ { code = 1 }' "$man" >examples
	[ "$(wc -l <examples)" -eq 13 ]
	set -e
	# shellcheck source=/dev/null
	. ./examples >output
	cat output
	[ "$(grep -c '^coordinator ' output)" -eq 3 ]
	[ "$(grep -c '^vm1 ' output)" -eq 1 ]
	[ -n "$(secret_of lab/keyring vm2)" ]
	[ "$(grep -c '^tower ' output)" -eq 1 ]
	falcon-key show node7/key | grep -q '^node7 '
	[ -z "$(secret_of lab/keyring tower)" ]
	[ -n "$(secret_of lab/keyring node7)" ]
	[ "public:$(falcon-key public node8/key)" = "$(secret_of lab/keyring node8)" ]
}
