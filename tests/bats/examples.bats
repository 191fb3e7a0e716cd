#!/usr/bin/env bats
# What examples/ and share/systemd hold runs as it stands.

load common
load tiny

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	export HOME=$PWD
	unset FALCON_KEY XDG_CONFIG_HOME XDG_CACHE_HOME
	umask 077
}

teardown() {
	stop_all
}

@test "ssh-lab: a worker reaches its coordinator through sshd alone" {
	local sshd=/usr/sbin/sshd
	[ -x "$sshd" ] || skip "no sshd: Debian's openssh-server has it"
	[ "$(id -u)" -eq 0 ] || skip "sshd switches users: it needs root"
	falcon-key init lab
	tiny .
	ssh-keygen -q -t ed25519 -N '' -f host
	ssh-keygen -q -t ed25519 -N '' -f user
	cp user.pub authorized
	printf 'lab %s\n' "$(cut -d' ' -f1,2 host.pub)" >known
	mkdir -p /run/sshd
	cat >sshd.conf <<-END
		HostKey $PWD/host
		AuthorizedKeysFile $PWD/authorized
		PermitRootLogin prohibit-password
		PidFile none
		StrictModes no
		UsePAM no
	END
	# A connection of its own for each session, so that no port is needed.
	cat >ssh.conf <<-END
		Host lab
			User root
			ProxyCommand $sshd -i -f $PWD/sshd.conf
			IdentityFile $PWD/user
			IdentitiesOnly yes
			BatchMode yes
			UserKnownHostsFile $PWD/known
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
			"cat lab/work.key" | lab/work.key) arg=$PWD/lab/work.key ;;
			esac
			set -- "\$@" "\$arg"
		done
		exec /usr/bin/ssh -F $PWD/ssh.conf "\$@"
	END
	chmod +x bin/ssh
	PATH=$PWD/bin:$PATH start work "$root/examples/ssh-lab" lab --lanes 1
	local work=$pid
	ended "$work" work
	ended "$ps" ps
	same key "$(cat .config/falcon/lab.key)" "$(cat lab/work.key)"
	falcon-stat --audit state/trace.jsonl
}

@test "crontab: the lines of the night train and end" {
	mkdir lab
	tiny lab
	mv lab/tiny.job lab/nightly.job
	falcon-key init lab/keys
	local line name
	# As cron reads it: five fields of time, then a command in which \% is %.
	grep -E '^[0-9*]' "$root/examples/crontab" >lines
	same "lines of five fields and a command" \
		"$(grep -cE '^([0-9]+|\*)( ([0-9]+|\*)){4} +cd ' lines)" 2
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

@test "crontab: its variables are plain" {
	# cron expands nothing in them.
	run grep -E '^[A-Z]+=.*[$~]' "$root/examples/crontab"
	same expansions "$output" ""
}

@test "systemd: the units are without fault" {
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	# It wants the programs to be there: these are, under their own names.
	sed "s|^ExecStart=falcon-|ExecStart=$bin/falcon-|" \
		"$root/share/systemd/falcon-ps@.service" >falcon-ps@.service
	sed "s|^ExecStart=falcon-|ExecStart=$bin/falcon-|" \
		"$root/share/systemd/falcon-work@.service" >falcon-work@.service
	for unit in falcon-ps@fashion.service falcon-work@lab.service; do
		run systemd-analyze verify --man=no "$unit"
		same "$unit: status" "$status" 0
		same "$unit" "$output" ""
	done
	# And it does find faults.
	sed -i 's/^Type=notify/Type=notifies/' falcon-ps@.service
	run systemd-analyze verify --man=no falcon-ps@fashion.service
	has "$output" notifies
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
