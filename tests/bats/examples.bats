#!/usr/bin/env bats
# What examples/ and share/systemd hold runs as it stands.

bats_require_minimum_version 1.5.0

load common
load tiny

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export HOME=$PWD
	unset FALCON_KEY XDG_CONFIG_HOME XDG_CACHE_HOME
	umask 077
}

@test "ssh-lab: a worker reaches its coordinator through sshd alone" {
	local sshd=/usr/sbin/sshd
	[ -x "$sshd" ] || skip "no sshd: Debian's openssh-server has it"
	[ "$(id -u)" -eq 0 ] || skip "sshd switches users: it needs root"
	local name
	name=$(uname -n)
	falcon-key init lab
	falcon-key add --keyring lab/keyring "$name"
	tiny .
	ssh-keygen -q -t ed25519 -N '' -f host
	ssh-keygen -q -t ed25519 -N '' -f user
	cp user.pub authorized
	printf 'lab %s\n' "$(cut -d' ' -f1,2 host.pub)" >known
	mkdir -p /run/sshd
	cat >sshd.conf <<-END
		HostKey "$PWD/host"
		AuthorizedKeysFile "$PWD/authorized"
		PermitRootLogin prohibit-password
		PidFile none
		StrictModes no
		UsePAM no
	END
	# A connection of its own for each session, so that no port is needed.
	cat >ssh.conf <<-END
		Host lab
			User root
			ProxyCommand $sshd -i -f '$PWD/sshd.conf'
			IdentityFile "$PWD/user"
			IdentitiesOnly yes
			BatchMode yes
			UserKnownHostsFile "$PWD/known"
	END
	start_ready ps falcon-ps --listen 127.0.0.1:0 --keyring lab/keyring --state state \
		--exit-when-done tiny.job
	local ps=$pid port=${ready##*:}
	# The example's command, with this configuration; lab's port 7000 is ours.
	mkdir bin
	cat >bin/ssh <<-END
		#!/bin/sh
		for arg; do
			shift
			case \$arg in
			127.0.0.1:7000) arg=127.0.0.1:$port ;;
			lab/$name.key) arg="'$PWD/lab/$name.key'" ;;
			esac
			set -- "\$@" "\$arg"
		done
		exec /usr/bin/ssh -F '$PWD/ssh.conf' "\$@"
	END
	chmod +x bin/ssh
	PATH=$PWD/bin:$PATH start work "$root/examples/ssh-lab" lab --lanes 1
	local work=$pid
	ended "$work" work
	ended "$ps" ps
	same key "$(cat .config/falcon/lab.key)" "$(cat "lab/$name.key")"
	has "$(grep '"ev":"join"' state/trace.jsonl)" "\"key\":\"$name\""
	falcon-stat --audit state/trace.jsonl
}

@test "crontab: the lines of the night train and end" {
	mkdir lab
	tiny lab
	mv lab/tiny.job lab/nightly.job
	falcon-key init lab/keys
	falcon-key add --keyring lab/keys/keyring "$(uname -n)"
	local line name
	# As cron reads it: five fields of time, then a command in which \% is %.
	grep -E '^[0-9*]' "$root/examples/crontab" >lines
	same "lines of five fields and a command" \
		"$(grep -cE '^([0-9]+|\*)( ([0-9]+(-[0-9]+)?|\*)){4} +cd ' lines)" 4
	while read -r _ _ _ _ _ line; do
		printf '%s\n' "${line//\\%/%}"
	done <lines >commands
	run grep -cE '[^+]%' commands
	same "bare % signs" "$output" 0
	for name in ps work; do
		line=$(grep "falcon-$name" commands)
		ADDR=unix:$PWD/socket start "$name" /bin/sh -c "$line"
		eval "$name=\$pid"
		# cron would give it a minute.
		[ "$name" = work ] || timeout 30 sh -c "until [ -S socket ]; do :; done"
	done
	ended "$work" work
	ended "$ps" ps
	same "what cron would mail" "$(cat ps.out)" ""
	falcon-stat --audit "lab/nights/$(date +%F)/trace.jsonl"
}

@test "crontab: workers do not pile up" {
	mkdir lab
	falcon-key init lab/keys
	falcon-key add --keyring lab/keys/keyring "$(uname -n)"
	local line
	line=$(grep falcon-work "$root/examples/crontab" | cut -d' ' -f6-)
	# Last night's, whose coordinator is away.
	ADDR=unix:$PWD/socket start work /bin/sh -c "$line"
	timeout 30 sh -c "until [ -e lab/work.lock ]; do :; done"
	timeout 30 sh -c "until ! flock -n lab/work.lock true; do :; done"
	# This night's ends at once, and has nothing to say to cron.
	ADDR=unix:$PWD/socket run timeout 5 /bin/sh -c "$line"
	same "status" "$status" 1
	same "what cron would mail" "$output" ""
	kill -0 "$pid"
	# The shell, the lock and the worker, whoever is whose child.
	local p
	while IFS=/ read -r _ _ p _; do
		kill -KILL "$p" 2>/dev/null || :
	done < <(grep -lF "unix:$PWD/socket" /proc/[0-9]*/cmdline 2>/dev/null)
}

# long DIR NAME...: a job of 4 clocks an epoch and 1000 epochs, and its workers.  There are
# keys for those of $absent, too, who do not come.
long() {
	local name dir=$1
	shift
	tiny "$dir"
	falcon-key init "$dir/keys"
	# shellcheck disable=SC2086 # a list of names
	for name in "$@" $absent; do
		falcon-key add --keyring "$dir/keys/keyring" "$name"
	done
	start_ready ps falcon-ps --listen "unix:$PWD/socket" --keyring "$dir/keys/keyring" \
		--state state --set job.epochs=1000 --min-workers $# "$dir/tiny.job"
	for name; do
		start "$name" falcon-work --key "$dir/keys/$name.key" --name "$name" --lanes 1 \
			--emulate rate=4000,cores=1 "$ready"
	done
}

@test "crontab: machines are free for a job by night only" {
	mkdir lab
	absent=pc2 long lab pc1 other
	# hour WHICH: runs the line of this hour, and shows what holds then.
	hour() {
		local line
		line=$(grep -E "^0 $1 " "$root/examples/crontab" | cut -d' ' -f6-)
		has "$line" 'falcon-sync'
		LONG=$ready /bin/sh -c "$line" >cron.out 2>&1
		same "what cron would mail at $1" "$(cat cron.out)" ""
		falcon-sync --json --key lab/keys/control.key "$ready" show >policy
		same scheme "$(jq -r .policy.scheme policy)" epsp
	}
	hour 8
	same "by day" "$(jq -c .policy.workers policy)" \
		'{"pc1":{"exclude":true},"pc2":{"exclude":true}}'
	hour 20
	same "by night" "$(jq -c .policy.workers policy)" null
}

# clock_lines NAME ID MS...: what a trace says of a worker: a task took MS in each clock.
clock_lines() {
	local name=$1 id=$2 clock=0 ms
	shift 2
	for ms; do
		printf '{"t":1,"ev":"clock","clock":%d,"worker":"%s","id":%d,"lanes":2,' \
			"$clock" "$name" "$id"
		printf '"share":8,"done":8,"task_s":0.%03d,"staleness":0}\n' "$ms"
		clock=$((clock + 1))
	done
}

# decide FACTOR CLOCKS: what policy-pipe makes of the trace on stdin.
decide() {
	mkdir -p bin
	printf '#!/bin/sh\necho "$*" >>"%s/args"; cat "%s"\n' "$PWD" "$PWD/trace" >bin/falcon-stat
	printf '#!/bin/sh\necho "$*" >>"%s/args"; cat\n' "$PWD" >bin/falcon-sync
	chmod +x bin/*
	cat >trace
	PATH=$PWD/bin:$PATH "$root/examples/policy-pipe" lab:7000 "$@"
}

# policy_line [NAME]: a policy that excludes a worker, or nobody.
policy_line() {
	printf '{"t":1,"ev":"policy","clock":9,"version":9,"scheme":"bsp","by":"k"'
	[ $# -eq 0 ] || printf ',"policy":{"scheme":"bsp","clones":true,"workers":%s}' \
		"{\"a\":{\"lanes\":[1,2]},\"$1\":{\"share\":1,\"exclude\":true}}"
	echo '}'
}

update_line() {
	printf '{"t":1,"ev":"update","version":%d,"clock":%d,"samples":64}\n' $(($1 + 1)) "$1"
}

out='{"workers":{"slow":{"exclude":true}}}'
in='{"workers":{"slow":{"exclude":false}}}'

@test "policy-pipe: who is slow for long enough is excluded, and nobody else" {
	fast=$(clock_lines a 1 10 10 10 && clock_lines b 2 11 11 11)
	same slow "$({ echo "$fast"; clock_lines slow 3 31 32 35; } | decide 2.5 3)" "$out"
	sort -u args >called
	same "what was called" "$(cat called)" "$(printf '%s\n' \
		'--follow lab:7000' '--min-dwell 1 lab:7000 apply -')"
	same "too few clocks" "$({ echo "$fast"; clock_lines slow 3 31 32; } | decide 2.5 3)" ""
	same "not in a row" \
		"$({ echo "$fast"; clock_lines slow 3 31 32 20 31 32; } | decide 2.5 3)" ""
	same "not slow enough" \
		"$({ echo "$fast"; clock_lines slow 3 20 20 20; } | decide 2.5 3)" ""
	same "asked again, if it still runs" \
		"$({ echo "$fast"; clock_lines slow 3 40 40 40 40 40 40; } | decide 2.5 3)" \
		"$(printf '%s\n' "$out" "$out")"
	# Who ran nothing took no time.
	same "no tasks" "$({
		clock_lines a 1 0
		clock_lines b 2 0
		clock_lines c 4 10
		clock_lines slow 3 20 20 20
	} | decide 2.5 3)" ""
	same "half of them stay" "$({
		clock_lines b 2 10
		policy_line b
		clock_lines a 1 10
		clock_lines slow 3 40 40 40
	} | decide 2.5 3)" ""
}

@test "policy-pipe: where numbers have a comma" {
	[ -e /usr/share/i18n/locales/de_DE ] || skip "no German: Debian's locales has it"
	localedef -i de_DE -f UTF-8 "$PWD/de_DE.UTF-8"
	export LOCPATH=$PWD LC_ALL=de_DE.UTF-8
	mkdir bin
	ln -s "$(command -v mawk || command -v awk)" bin/awk
	same slow "$({
		clock_lines a 1 10 10
		clock_lines b 2 11 11
		clock_lines slow 3 31 32
	} | decide 2.5 2)" "$out"
}

@test "policy-pipe: a trial comes, later each time, and only for whom it excluded" {
	local fast
	fast=$(clock_lines a 1 10 10 && clock_lines b 2 11 11)
	# Two clocks are enough: the first trial comes after 20, the second after 40.
	{
		echo "$fast"
		update_line 90
		clock_lines slow 3 40 40
		policy_line slow
		update_line 99
		update_line 109
		update_line 110
		policy_line
		clock_lines slow 3 40 40
		policy_line slow
		update_line 135
		update_line 149
		update_line 150
		update_line 151
		update_line 152
	} | decide 3 2 >said
	same said "$(cat said)" "$(printf '%s\n' "$out" "$in" "$out" "$in" "$in")"
	# Back since 121; then excluded by others, and out for good.
	{
		echo "$fast"
		update_line 100
		clock_lines slow 3 40 40
		policy_line slow
		update_line 120
		policy_line
		policy_line slow
		update_line 1000
	} | decide 3 2 >said
	same "excluded by others" "$(cat said)" "$(printf '%s\n' "$out" "$in")"
}

@test "policy-pipe: in a running job" {
	tiny .
	falcon-key init lab
	local name ps pipe
	start_ready ps falcon-ps --listen "unix:$PWD/socket" --keyring lab/keyring \
		--state state --set job.epochs=60 --set sync.scheme=bsp --min-workers 3 \
		--exit-when-done tiny.job
	ps=$pid
	FALCON_KEY=lab/control.key start pipe "$root/examples/policy-pipe" "$ready" 3 5
	pipe=$pid
	for name in a b slow; do
		start "$name" falcon-work --key lab/work.key --name "$name" --lanes 1 --emulate \
			"rate=4000,cores=1,speed=$([ "$name" = slow ] && echo 1/8 || echo 1)" "$ready"
	done
	ended "$ps" ps
	ended "$pipe" pipe
	jq -r '[.by, (.policy.workers.slow.exclude // false)] | @tsv' state/policy.jsonl >have
	cat have pipe.err
	same "by whom" "$(cut -f1 have | sort -u)" control
	same "at first" "$(head -n 3 have | cut -f2 | tr '\n' ' ')" "true false true "
	# Nobody else, and the model is that of bsp alone.
	same others "$(jq -c '.policy.workers // {} | keys' state/policy.jsonl | sort -u)" \
		"$(printf '%s\n' '["slow"]' '[]')"
	falcon-stat --audit state/trace.jsonl
}

# windows LENGTH: how many gpt.py makes of a text of so many characters.
windows() {
	local tenth=$(($1 / 10))
	local train=$((9 * tenth))
	echo $(((train - 1) / 64)) $((($1 - train - 1) / 64 >= 400))
}

@test "gpt.py: a text that is too short for its job" {
	/usr/bin/python3 -c 'import torch' 2>/dev/null || skip "no PyTorch"
	export PYTHONPATH=$root/share PYTHONDONTWRITEBYTECODE=1
	local least gpt="$root/examples/exec/gpt.py"
	cp "$root/examples/exec/gpt.job" .
	least=$(sed -n 's/^NEEDED = \([0-9]*\).*/\1/p' "$gpt")
	same "of the least" "$(windows "$least")" "$(sed -n 's/^samples = //p' gpt.job) 1"
	same "of one less" "$(windows $((least - 1)))" "4799 1"
	same "where it is said" "$(grep -c "text of $least" "$gpt" gpt.job)" \
		"$gpt:1"$'\n'"gpt.job:1"
	seq 400 >text
	/usr/bin/python3 "$gpt" text init.safetensors
	run -1 falcon-work --exec "exec /usr/bin/python3 '$gpt' text" --try gpt.job
	grep -Eq "trainer 0: text: has 1492 characters, too few for sample [0-9]+: gpt.job needs \
$least\$" <<<"$output"
	[[ $output != *Traceback* ]]
}

@test "falcon-policy(5): its examples hold" {
	awk '/^\.Sh/ { on = /EXAMPLES/ } /^\.Ed/ { code = 0 } code { print >("block." n) }
		on && /^\.Bd -literal/ { code = 1; n++ }' "$root/man/falcon-policy.5"
	absent="lab1 lab2 lab4" long . lab3
	export FALCON_KEY=keys/control.key
	falcon-sync "$ready" apply block.1 >said
	same "the policy" "$(falcon-sync --json "$ready" show | jq -cS .policy)" \
		"$(jq -cS . block.1)"
	# What `cat` prints in the page is the file.
	grep -v '^\$' block.2 >day.json
	local session
	session=$(cat block.2 block.3)
	grep '^\$ ' <<<"$session" | sed "s/^. //; s|lab:7000|\"\$ready\"|; s|run/|state/|" >commands
	same commands "$(wc -l <commands)" 4
	# shellcheck source=/dev/null
	(set -eo pipefail && . ./commands) >said
	cat said
	same "who and what" "$(tail -n 2 said | cut -f2-)" \
		"$(printf 'control\tepsp:2\n%.0s' 1 2)"
	same "all that holds" "$(falcon-sync --json "$ready" show |
		jq -c '.policy.workers | map_values(.exclude)')" \
		'{"lab1":true,"lab2":true,"lab3":null,"lab4":true}'
}

@test "crontab: its variables are plain" {
	# cron expands nothing in them.
	run grep -E '^[A-Z]+=.*[$~]' "$root/examples/crontab"
	same expansions "$output" ""
}

@test "systemd: the units are without fault" {
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	# It wants the programs to be there: these are, under their own names.
	for unit in falcon-keys falcon-ps@ falcon-work@; do
		sed "s|@prefix@/bin|$bin|" "$root/share/systemd/$unit.service" >"$unit.service"
	done
	for unit in falcon-keys.service falcon-ps@fashion.service falcon-work@lab.service; do
		run systemd-analyze verify --man=no "$unit"
		same "$unit: status" "$status" 0
		same "$unit" "$output" ""
	done
	# And it does find faults.
	sed -i 's/^Type=notify/Type=notifies/' falcon-ps@.service
	run systemd-analyze verify --man=no falcon-ps@fashion.service
	has "$output" notifies
}

# reload: what the unit of falcon-ps does as root to read its keyring again, in this folder.
reload() {
	sed -n '/^ExecReload=+/,/[^\\]$/p' "$root/share/systemd/falcon-ps@.service" |
		sed -e "s|^ExecReload=+/bin/sh -ec '||" -e "\$s|'\$||" -e 's|\\$||' -e 's|\$\$|$|g' \
			-e "s|%t|$PWD/run|g" -e 's|%i|fashion|g' \
			-e 's|/etc/falcon/keys/keyring|lab/keyring|' >reload.sh
	has "$(<reload.sh)" lab/keyring
	sh -e reload.sh
}

@test "systemd: a reload gives the service its keyring, and is led astray by no link" {
	[ "$(id -u)" -eq 0 ] || skip "it is root's part: it needs root"
	local at=run/falcon-ps/fashion/keyring
	falcon-key init lab
	mkdir -p run/falcon-ps/fashion
	chown nobody run/falcon-ps/fashion
	reload
	cmp lab/keyring "$at"
	same "whose it is" "$(stat -c '%U %a %F' "$at")" "nobody 600 regular file"
	falcon-key add --keyring lab/keyring vm1
	reload
	cmp lab/keyring "$at"
	# What whoever has got hold of the service may do to its folder.
	echo precious >victim
	rm "$at"
	ln -s "$PWD/victim" "$at"
	chown -h nobody "$at"
	reload
	same "the file that the link leads to" "$(stat -c %U victim) $(<victim)" "root precious"
	cmp lab/keyring "$at"
	same "whose it is" "$(stat -c '%U %a %F' "$at")" "nobody 600 regular file"
	# A link to a folder is no folder either.
	mkdir elsewhere
	ln -sfn "$PWD/elsewhere" "$at"
	reload
	same "what is in it" "$(ls elsewhere)" ""
	cmp lab/keyring "$at"
	# What cannot be done leaves nothing behind.
	rm "$at"
	mkdir "$at"
	! reload || return 1
	same "what is left" "$(ls run)" falcon-ps
}

# unit_line NAME: what that unit starts, as one line of sh, in this folder.
unit_line() {
	sed -n '/^ExecStart=/ { :a; /\\$/ { N; ba }; s/\\\n/ /g; s/^ExecStart=//p }' \
		"$root/share/systemd/$1.service" |
		sed -e 's|\$\$|$|g' -e "s|%[tS]|$PWD|g" -e "s|@prefix@|$PWD/usr|g" \
			-e "s|/etc/falcon|$PWD/etc|g" -e 's|%i|tiny|g'
}

@test "systemd: falcon-keys makes keys, falcon-ps takes the job of /etc, else the shipped one" {
	mkdir -p usr/bin usr/share/falcon/jobs etc falcon-ps/tiny falcon
	ln -s "$bin"/* usr/bin
	unit_line falcon-keys >line
	sh -e line
	cp etc/keys/keyring falcon-ps/tiny
	tiny usr/share/falcon/jobs
	unit_line falcon-ps@ >line
	for place in usr/share/falcon/jobs etc; do
		[ -e $place/tiny.job ] || tiny etc
		sed -i 's/^epochs = .*/epochs = x/' $place/tiny.job
		run -2 env LISTEN=unix:sock sh -e line
		same "from $place" "$output" \
			"falcon-ps: $PWD/$place/tiny.job:4: job.epochs: 'x' is not a whole number"
	done
	sed -i 's/^epochs = .*/epochs = 2/' etc/tiny.job
	start ps env LISTEN=unix:sock sh -e line
	local ps=$pid
	start work falcon-work -k etc/keys/work.key unix:sock
	ended "$pid" work
	ended "$ps" ps
	[ -s falcon/tiny/model.safetensors ]
}

@test "systemd: the options in the units are the programs'" {
	for name in ps work; do
		help=$("falcon-$name" --help)
		options=$(sed -n '/^ExecStart=/,/[^\\]$/p' \
			"$root/share/systemd/falcon-$name@.service" |
			grep -o -- ' --[a-z-]*')
		[ -n "$options" ]
		for option in $options; do
			has "$help" "$option"
		done
	done
}
