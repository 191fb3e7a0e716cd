# Programs of another version: those of another protocol are refused, and both ends say
# whose they are; those of the same one work together.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	[ -x "$bin/tests/build/falcon-ps" ] # make check builds other versions
	tiny .
	job=(tiny.job)
	ours="Falcon $(version ours)"
}

# of WHICH COMMAND...: with the programs of `protocol`, `messages`, `build`, or ours.
of() {
	local PATH=$PATH
	[ "$1" = ours ] || PATH=$bin/tests/$1:$PATH
	hash -r
	"${@:2}"
}

# refused STATUS LINE COMMAND...: it ends so, and with one line that says this.
refused() {
	run "${@:3}"
	same "status of $3 ($output)" "$status" "$1"
	same "what $3 says" "${output##*: }" "$2"
}

# both SERVER CLIENT THEIRS OURS: each client's and the server's words of the other one.
both() {
	of "$1" serve
	refused 1 "it is $3, we are $4" of "$2" falcon-work -k "$keys/work.key" -n w "$ready"
	refused 1 "it is $3, we are $4" of "$2" falcon-stat -k "$keys/observe.key" "$ready"
	refused 1 "it is $3, we are $4" of "$2" falcon-sync -k "$keys/control.key" "$ready" show
	refused 1 "it is $3, we are $4" of "$2" falcon-sync -k "$keys/control.key" "$ready" \
		set scheme=bsp
	soon "the coordinator's word" grep -q "it is $4, we are $3" ps.err
	run -1 grep -q join "$state/trace.jsonl"
	# It goes on with those of its own.
	of "$1" work same --lanes 1
	ended "$ps" ps
	"$bin/falcon-stat" --audit "$state"
}

@test "a newer protocol at the workers, observers and controllers" {
	both ours protocol "$ours with protocol 9.0" "Falcon 9.9.9 with protocol 10.1"
}

@test "a newer protocol at the coordinator" {
	both protocol ours "Falcon 9.9.9 with protocol 10.1" "$ours with protocol 9.0"
}

@test "another version of the same protocol works, and the trace has it" {
	local version
	[ "$(of build falcon-work --version)" = "falcon-work 9.9.9" ]
	for version in ours build; do
		of "$version" serve -w 3
		of build work new --lanes 1
		of ours work old --lanes 1
		soon "both" lines 2 '"ev":"join"'
		falcon-stat -k "$keys/observe.key" "$ready" >table
		falcon-sync -k "$keys/control.key" "$ready" show >policy
		has "$(cat table)" new
		has "$(cat policy)" scheme
		of ours work last --lanes 1
		judge
		same versions "$(jq -c 'select(.ev == "join" and .worker != "last") | [.worker, .version]' \
			"$state/trace.jsonl" | sort)" \
			"[\"new\",\"9.9.9\"]
[\"old\",\"${ours#Falcon }\"]"
		again
	done
}

# version WHICH, schema WHICH: of falcon-ps.
version() {
	of "$1" falcon-ps --version | cut -d ' ' -f 2
}
schema() {
	of "$1" falcon-ps --version | sed 's/.*(schema \(.*\))$/\1/'
}

@test "other messages, by the same protocol: workers and shards are refused, and both named" {
	local at theirs line
	[[ $(schema ours) =~ ^[0-9a-f]{16}$ ]]
	[ "$(schema ours)" = "$(schema build)" ]
	for at in ours messages; do
		theirs=messages
		[ "$at" = ours ] || theirs=ours
		line="its messages are of schema $(schema "$theirs"), the coordinator's of schema \
$(schema "$at") (from Falcon $(version "$theirs") to Falcon $(version "$at"))"
		of "$at" serve
		refused 77 "$line" of "$theirs" falcon-work -k "$keys/work.key" -n w "$ready"
		refused 1 "$line" of "$theirs" falcon-ps -k "$keys/shard.key" --join "$ready" \
			--listen 127.0.0.1:0
		soon "the coordinator's word" grep -qF "$line" ps.err
		of "$at" work same --lanes 1
		ended "$ps" ps
		again
	done
}

# by SUITE NAME...: what these workers say of their sessions.
by() {
	local name
	for name in "${@:2}"; do
		soon "what $name has" grep -q "joined job tiny by $1[;,]" "$name.err"
	done
}

@test "with libcrypto and without: by what both have, and the same model" {
	local at worker hash='' chacha=ChaCha20-Poly1305
	for at in sodium ours; do
		of "$at" serve -w 3
		of sodium work plain --lanes 1 -v
		for worker in one two; do
			of ours work "$worker" --lanes 1 -v
		done
		by "$chacha" plain
		[ "$at" = ours ] || by "$chacha" one two
		by "\($chacha\|AES-256-GCM\)" one two
		judge
		hash=${hash:-$(member model)}
		same model "$(member model)" "$hash"
		again
	done
}

@test "numerics that differ: which version it is" {
	serve -w 2 --set job.numerics=fast
	work a --lanes 1
	OPENBLAS_CORETYPE=NEHALEM of build work odd --lanes 1
	ended "$ps" ps
	falcon-stat --json "$state/trace.jsonl" >table
	same versions "$(jq -c '[.workers[] | .version] | sort' table)" \
		"[\"${ours#Falcon }\",\"9.9.9\"]"
	if [ "$(jq -r .numerics table)" = differ ]; then
		[[ $(falcon-stat "$state/trace.jsonl") =~ "numerics: differ: "(odd|a)" (Falcon " ]]
	fi
}

# says MAJOR MINOR KIND: a client of this protocol that says HELLO, and then this.
says() {
	/usr/bin/python3 - "$keys/work.key" "$ready" "$@" <<-'END'
		import os, struct, sys
		from client import HELLO, REFUSE, Link, Worker
		Link.VERSION, Link.BUILD = (int(sys.argv[3]), int(sys.argv[4])), b"8.8.8"
		with open(sys.argv[1]) as f:
		    w = Worker(Link(f.read(), sys.argv[2]))
		w.hello(b"odd", b"8.8.8")
		w.incarnation = 0
		w.say(int(sys.argv[5]))
		while struct.unpack_from("<H", p := w.link.receive())[0] != REFUSE:
		    pass
		print(p[10:-1].decode())
	END
}

@test "a message that the other version does not know: both are named" {
	needs_cryptography
	export PYTHONPATH=$root/tests/client PYTHONDONTWRITEBYTECODE=1
	serve
	says 9 0 77 >said
	same said "$(cat said)" "a message that cannot be read (from Falcon 8.8.8 to $ours)"
	soon "the same here" grep -qF "$(cat said)" ps.err
	# One from before versions were told.
	run -1 says 5 0 77
	has "$output" "refused: verdict 1"
	soon "its protocol" grep -qF "it speaks protocol 5.0, we are $ours with protocol 9.0" ps.err
}
