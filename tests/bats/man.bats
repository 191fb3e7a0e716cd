#!/usr/bin/env bats
# Man pages and programs agree, and the examples of the pages are commands that exist.
#
# An example is a literal block in EXAMPLES: all of it commands, or, where it has lines
# that begin with "$ ", those and their indented continuations.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export HOME=$PWD
	unset FALCON_KEY XDG_CONFIG_HOME XDG_CACHE_HOME
	umask 077
}

# letters: the options of all programs that have a letter, as "-l, --listen"; each once.
letters() {
	local name
	for name in $(programs); do
		"$name" --help | grep -oE '^ *-[^-], --[a-z-]+' | sed 's/^ *//'
	done | sort -u
}

# programs: the names of all.
programs() {
	(cd "$root/cmd" && printf '%s\n' *)
}

# examples PAGE: the commands of its examples, blocks parted by empty lines.
# Files stand in displays that are not literal.
examples() {
	awk '
		/^\.Sh/ { on = /EXAMPLES/ }
		/^\.Ed/ && code { flush(); code = 0 }
		code { line[++n] = $0; if (/^\$ /) session = 1 }
		on && /^\.Bd -literal/ { code = 1; n = session = 0 }
		on && sub(/^\.Dl /, "") { print; print "" }
		function flush(i, more) {
			for (i = 1; i <= n; i++) {
				more = more && line[i] ~ /^ /
				if (!session || more || line[i] ~ /^\$ /) {
					more = 1
					sub(/^\$ /, "", line[i])
					gsub(/\\e/, "\\", line[i])
					print line[i]
				}
			}
			print ""
		}' "$1"
}

# options_of TEXT...: the long options in it, sorted.
options_of() {
	grep -oE -- '--[a-z][a-z-]*' | sort -u
}

@test "each program has a page of section 1, and each such page a program" {
	same programs "$(programs)" "$(cd "$root/man" && printf '%s\n' *.1 | sed 's/\.1$//')"
	# The test can fail: there are some.
	[ "$(programs | wc -l)" -ge 4 ]
}

@test "mandoc finds no fault, and every page that is named is there" {
	cd "$root"
	for page in man/*.[157]; do
		run .ci/man "$page"
		same "$page" "$output" ""
		same "$page: status" "$status" 0
	done
}

@test "mandoc would find a fault" {
	mkdir man
	sed 's/^\.Sh DESCRIPTION/.Sx/' "$root/man/falcon.7" >man/falcon.7
	run "$root/.ci/man" man/falcon.7
	has "$output" "man/falcon.7"
	same status "$status" 1
}

@test "groff has nothing to warn of, either" {
	command -v groff >/dev/null || skip "no groff"
	groff -mdoc -Tutf8 </dev/null >/dev/null 2>&1 || skip "groff without mdoc"
	local page
	for page in "$root"/man/*; do
		same "$page" "$(groff -ww -mdoc -Tutf8 -rLL=78n "$page" 2>&1 >/dev/null)" ""
	done
}

@test "pages of section 1 have EXIT STATUS and EXAMPLES" {
	for page in "$root"/man/*.1; do
		for section in NAME SYNOPSIS DESCRIPTION "EXIT STATUS" EXAMPLES; do
			same "$page" "$(grep -cx "\.Sh $section" "$page")" 1
		done
		[ -n "$(examples "$page")" ]
	done
}

@test "a program's options are those of its page" {
	for name in $(programs); do
		"$name" --help | options_of | grep -vxE -- '--(help|version|usage)' >have
		sed -nE 's/^\.It (Fl . Ns , |Fl . , )?(Fl )?-([a-z-]+).*/--\3/p' \
			"$root/man/$name.1" | sort -u | grep -vxE -- '--(help|version)' >told
		same "$name: options in --help and in the page" "$(cat have)" "$(cat told)"
	done
}

@test "completions: every option and command of --help, in bash and zsh" {
	declare -A commands=([falcon-key]="init add new public revoke show pair sign verify"
		[falcon-sync]="show set apply watch drain pause resume export checkpoint stop")
	for name in $(programs); do
		"$root/share/make/completions" bash "$bin/$name" >bash.sh
		# shellcheck source=/dev/null
		. ./bash.sh
		same "of $name" "$(complete -p "$name")" "complete -o default -F _${name/-/_} $name"
		"_${name/-/_}" "$name" -- "$name"
		same "options of $name" "$(printf '%s\n' "${COMPREPLY[@]}" | sort)" \
			"$("$name" --help | options_of)"
		"_${name/-/_}" "$name" "" "$name"
		same "commands of $name" "${COMPREPLY[*]}" "${commands[$name]:-}"
		"_${name/-/_}" "$name" "" "--json"
		same "after a flag of $name" "${COMPREPLY[*]}" "${commands[$name]:-}"
		"_${name/-/_}" "$name" "" "--key" # a file follows
		same "after an option of $name" "${COMPREPLY[*]}" ""
		"$root/share/make/completions" zsh "$bin/$name" >"_$name"
		same "zsh: options of $name" "$(grep -o "^.'--[a-z-]*" "_$name" | cut -c3- | sort)" \
			"$("$name" --help | options_of)"
		! command -v zsh >/dev/null || zsh -n "_$name"
	done
}

@test "the same letter means the same in all programs, and for each meaning" {
	letters >all
	cat all
	same "letters with two meanings" "$(cut -d, -f1 all | uniq -d)" ""
	same "options with two letters" "$(cut -d, -f2 all | sort | uniq -d)" ""
	[ "$(wc -l <all)" -ge 15 ]
}

# described PAGE: the members of the JSON on standard input are words of the page's macros;
# NAME_s may be there as NAME.
described() {
	local name names missing="" page=$root/man/$1 words
	words=$(grep -E '^\.(Va|Li|It|Cm|Ql) ' "$page" | tr '[:upper:]' '[:lower:]' | tr -cs 'a-z0-9_' '\n' | sort -u)
	names=$(jq -r 'paths | map(select(type == "string")) | last // empty' |
		grep -v '^[0-9]*$' | sort -u)
	[ -n "$names" ]
	for name in $names; do
		grep -qxF -e "$name" -e "${name%_s}" <<<"$words" || missing+=" $name"
	done
	same "members that $1 does not have" "$missing" ""
}

@test "the members of all JSON are in the pages of those who print it" {
	for_file
	for_test
	tiny .
	job=(--set optimizer.ema=0.9 --set state.best=yes tiny.job)
	serve --shards 2 --min-workers 2
	work a --lanes 1
	work b --lanes 1
	wait "$ps"
	described falcon-ps.1 <"$state/result.json"
	falcon-stat --json "$state/trace.jsonl" | described falcon-stat.1
	falcon-stat --json --history "$state/trace.jsonl" | described falcon-stat.1
	falcon-stat --json --audit "$state" | described falcon-stat.1
	falcon-stat --json --audit --recompute 100% "$state" | described falcon-stat.1
	falcon-proj --json "$state/trace.jsonl" | described falcon-proj.1
	falcon-proj --json --with name=c --what-if all "$state/trace.jsonl" |
		described falcon-proj.1
	falcon-work --json --eval "$state/model.safetensors" tiny.job | described falcon-work.1
}

@test "falcon-protocol(7) is of the protocol that is spoken" {
	local part version=
	for part in MAJOR MINOR; do
		version+=.$(sed -n "s/^#define FAL_PROTO_$part //p" "$root/lib/wire/msg.h")
	done
	same "the page's" "$(sed -n 's/^This page defines protocol \([0-9.]*\):.*/.\1/p
		s/^u16 *\(major\|minor\) version, /./p' "$root/man/falcon-protocol.7" | paste -sd' ')" \
		"$version .${version:1:1} .${version:3}"
}

@test "examples are commands that the shell can read" {
	for page in "$root"/man/*.[17]; do
		examples "$page" >commands
		run bash -n commands
		same "$page" "$output" ""
	done
	echo 'falcon-ps (' >commands
	run bash -n commands
	[ "$status" -ne 0 ]
}

@test "examples use options that there are" {
	local checked=0 names
	names=$(programs)
	declare -A help
	for name in $names; do
		help[$name]=$("$name" --help)
	done
	for page in "$root"/man/*.[157]; do
		examples "$page" | sed 's/[|&]/\n/g' >commands
		for name in $names; do
			[[ $(<commands) == *"$name"* ]] || continue
			for option in $(grep -E "(^| )$name( |\$)" commands | options_of); do
				has "${help[$name]}" "$option" || {
					echo "$page"
					return 1
				}
				checked=$((checked + 1))
			done
		done
	done
	echo "$checked"
	[ "$checked" -ge 10 ]
}

# world: what the examples name is here: keys, jobs, a trace, and the way to a coordinator,
# which is at the socket `lab` instead of a port.
world() {
	falcon-key init lab
	cp lab/all.key key
	export FALCON_KEY=$PWD/key
	mkdir -p share/jobs
	tiny .
	tiny share/jobs
	cp tiny.job fashion.job
	cp share/jobs/tiny.job share/jobs/fashion.job
	falcon-ps() {
		command falcon-ps --listen unix:lab.socket "$@"
	}
}

# here PAGE [PATTERN]: the examples with the pattern, for this world, in `commands`.
here() {
	examples "$root/man/$1" | awk -v RS= -v ORS='\n\n' -v p="${2-.}" '$0 ~ p' |
		sed 's/\(127\.0\.0\.1\|lab\):7000/unix:lab.socket/g; s/rate=4000/rate=400/' >commands
	cat commands
	[ -s commands ]
}

# run_commands: in one shell; a failure ends it.
run_commands() {
	# In a shell of its own: what fails there must be able to say so.
	(
		set -eo pipefail
		# shellcheck source=/dev/null
		. ./commands >output 3>&-
	)
	cat output
}

@test "falcon-ps(1): its examples run" {
	world
	here falcon-ps.1 fashion
	run_commands
	wait
	same accuracy "$(tail -n 1 output | jq 'has("accuracy")')" true
}

# typed [PATTERN]: what is typed in the two labs of falcon-ps(1), each line in its host's
# folder, to what the pattern is in or the end; what is there is gone from `commands` then.
typed() {
	local host line
	while read -r host line; do
		sed -i 1d commands
		host=${host%$}
		mkdir -p "$host"
		line=${line//0.0.0.0:7000/unix:../$host.sock}
		line=$(sed 's/\(lab[12]\):7000/unix:..\/\1.sock/g' <<<"$line")
		echo "$host: $line"
		case $line in
		*\&) start "$host.$((++typed))" bash -c "cd $host && exec ${line%&}" ;;
		*) (cd "$host" && bash -c "$line") ;;
		esac
		[[ "$host $line" != *"${1:-no such line}"* ]] || return 0
	done < <(cat commands)
}

@test "falcon-ps(1): two labs, one job, as it is typed" {
	typed=0
	mkdir bin lab1
	# Hosts are folders, and speeds are such that it takes a while.
	cat >bin/scp <<-'END'
		#!/bin/sh
		for to; do :; done
		mkdir -p "../${to%:}"
		while [ $# -gt 1 ]; do
			cp "$1" "../${to%:}"
			shift
		done
	END
	printf '#!/bin/sh\nexec "%s" --lanes 1 --emulate rate=4000 "$@"\n' \
		"$(command -v falcon-work)" >bin/falcon-work
	chmod +x bin/*
	export PATH=$PWD/bin:$PATH XDG_CACHE_HOME=$PWD/cache
	unset FALCON_KEY
	tiny lab1
	sed 's/^name = .*/name = big/; s/^epochs = .*/epochs = 200/; s/tiny.model/big.model/' \
		lab1/tiny.job >lab1/big.job
	mv lab1/tiny.model lab1/big.model
	examples "$root/man/falcon-ps.1" | sed ':a; /\\$/ { N; s/\\\n *//; ba; }' |
		grep -E '^(lab[12]|vm[34])\$ ' >commands
	same "lines" "$(wc -l <commands)" 17
	typed "vm4 falcon-work"
	soon "the other lab is there" grep -qs "joined as one worker: 2 members" lab2.3.err
	typed "lab2 falcon-stat" >seen
	grep -qE "^lab2 +[a-z-]+ +[a-z-]+ +2 +2 " seen
	has "$(<seen)" "job: big, epsp, a group of unix:../lab1.sock"
	wait "${started[@]}"
	typed >audits
	same "verdicts" "$(grep -c "audit: ok: " audits)" 2
}

@test "falcon-stat(1): its examples run" {
	world
	# A job that is done, and still there to be asked.
	start_ready ps env falcon-ps --listen unix:lab.socket --keyring lab/keyring \
		--state run --trace run.trace tiny.job
	start work falcon-work --lanes 1 unix:lab.socket
	ended "$pid" work
	# It is known by its bytes, not by its name.
	zstd -q run.trace -o run.trace.zst || cp run.trace run.trace.zst
	here falcon-stat.1
	run_commands
	same verdicts "$(grep -c '^audit: ok: 8 clocks, 64 tasks,' output)" 2
	# The chain as falcon-trace(5) checks it, of this trace and of a changed one.
	here falcon-trace.5 b2sum
	run_commands
	same "the last link" "$(cat output)" "$(jq -r .chain run/result.json)"
	sed -i '/"ev":"policy"/s/"clock":0/"clock":1/' run.trace
	run_commands
	has "$(head -n 1 output)" 'broken: {"t":0.000000,"ev":"policy","clock":1,'
	run ! grep "$(jq -r .chain run/result.json)\$" output
}

@test "falcon-work(1): its examples run" {
	world
	cp key work.key
	# The way through ssh is short here.
	mkdir bin
	printf '#!/bin/sh\n[ "$*" = "-W 127.0.0.1:7000 lab" ] || exit 1\n%s\n' \
		"exec socat - UNIX-CONNECT:lab.socket" >bin/ssh
	chmod +x bin/ssh
	# The trainer is one without a library.
	{
		echo 'import sys'
		echo 'sys.argv = ["train.py", "well"]'
		cat "$root/tests/hostile/trainer.py"
	} >train.py
	cp "$root/share/falcon_train.py" .
	export TRAINER_LOG=$PWD/trainer.log
	PATH=$PWD/bin:$PATH
	here falcon-work.1
	awk -v RS= '{ print >("block." NR) }' commands
	for block in block.*; do
		cp "$block" commands
		if ! grep -q -e --eval -e --predict -e --try -e --bench commands; then
			rm -rf fashion.state ps.ready
			start_ready ps env falcon-ps --listen unix:lab.socket -x \
				--keyring lab/keyring --state fashion.state \
				--min-workers "$(grep -c falcon-work commands)" fashion.job
		fi
		run_commands
		wait
		falcon-stat --audit fashion.state/trace.jsonl
	done
	# Of 256 images; the last block has judged the model.
	has "$(cat output)" 256
}

@test "falcon-sync(1): its examples run" {
	world
	start_ready ps env falcon-ps --listen unix:lab.socket --keyring lab/keyring \
		--state run --set job.epochs=50 fashion.job
	start slow falcon-work --name slow --lanes 1 --emulate rate=1600 unix:lab.socket
	state=run soon "the worker" lines 1 '"ev":"join"'
	here falcon-sync.1
	run_commands
	same changes "$(grep -c '(model), from clock\|(neutral), from clock' output)" 3
	has "$(tail -n 1 output)" " 256 "
}

@test "falcon-proj(1): its examples run" {
	world
	start_ready ps env falcon-ps --listen unix:lab.socket --keyring lab/keyring \
		--state state --set sync.scheme=bsp --set job.epochs=5000 -x fashion.job
	start slow falcon-work --lanes 1 --emulate rate=1600 unix:lab.socket
	state=state at_clock 29
	here falcon-proj.1
	# The pipe ends with the job, and that when both its ends are there.
	piped() {
		[ "$(grep -c lab.socket /proc/net/unix)" -ge 4 ]
	}
	{ soon "the pipe" piped && falcon-sync unix:lab.socket stop; } 3>&- &
	run_commands
	same predictions "$(grep -c '^backtest: ' output)" 3
	has "$(cat output)" "1000 workers drawn from these (seed 1)"
	[ -s bands.svg ] && [ -s curves.svg ]
	has "$(cat output)" "host9 is "
}

@test "falcon(7): the first session" {
	world
	rm -r lab
	here falcon.7 "falcon-key init"
	run_commands
	has "$(cat output)" "audit: ok: 8 clocks, 64 tasks,"
}

@test "README: the session by hand" {
	world
	rm -r lab
	mkdir build
	ln -s "$bin" build/release
	# Long enough to be looked at.
	sed -i 's/^epochs = .*/epochs = 1000/' share/jobs/fashion.job
	# All of the block is run; the data are small, and the port is a socket.
	awk '/^## A session by hand/ { on = 1 } /^    / && on { print; n++ } n && /^$/ { exit }' \
		"$root/README.md" | sed 's/^    //; s/127\.0\.0\.1:7000/unix:lab.socket/' >commands
	cat commands
	same "lines" "$(wc -l <commands)" 12
	has "$(cat commands)" share/jobs/fashion.job
	run_commands
	has "$(cat output)" "audit: ok: 4,000 clocks, 32,000 tasks,"
}
