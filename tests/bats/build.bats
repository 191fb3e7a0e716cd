#!/usr/bin/env bats
# The build's own promises: floors, dependencies, the closing line, install.

load common

setup() {
	cd "$root"
	tmp=$BATS_TEST_TMPDIR
	# This may run inside make check.
	unset MAKEFLAGS MFLAGS MAKELEVEL MODE B
}

# A copy of the sources, to be spoilt.
copy_tree() {
	mkdir "$tmp/tree"
	cp -r lib cmd "$tmp/tree"
	mkdir -p "$tmp/tree/tests/unit"
	cp tests/unit/test_base.c "$tmp/tree/tests/unit"
}

# refused FILE LINE WHAT: with LINE added to FILE, the floors say WHAT and fail.
refused() {
	copy_tree
	printf '%s\n' "$2" >>"$tmp/tree/$1"
	run .ci/floors "$tmp/tree"
	same "exit status" "$status" 1
	has "$output" "$1:"
	has "$output" "$3"
	rm -r "$tmp/tree"
}

@test "floors: this tree holds them" {
	run .ci/floors
	same output "$output" ""
	same "exit status" "$status" 0
}

@test "floors: an include upwards, or of the same floor, is refused" {
	refused lib/base/buf.c '#include "wire/bfp.h"' 'which is not below it'
	refused lib/wire/bfp.c '#include "math/optim.h"' 'which is not below it'
	refused lib/job/job.c '#include "nonsense/net.h"' 'no such floor'
}

@test "floors: each library has one place" {
	refused lib/base/buf.c '#include <sodium.h>' '<sodium.h> is not for this place'
	refused lib/crypto/hash.c '#include <zstd.h>' '<zstd.h> is not for this place'
	refused lib/job/job.c '#  include <popt.h>' '<popt.h> is not for this place'
	refused cmd/falcon-key/main.c '#include <cblas.h>' '<cblas.h> is not for this place'
}

@test "floors: pure folders neither read, print nor look at the clock" {
	refused lib/wire/bfp.c 'int x(void) { return read(0, 0, 0); }' 'is pure, but calls'
	refused lib/sched/sched.c '/* now */ t = time(NULL);' 'is pure, but calls'
	refused lib/math/optim.c 'printf ("x");' 'is pure, but calls'
	refused lib/base/rng.c 'int r = rand();' 'randomness outside lib/crypto'
}

@test "floors: shards know of no scheduler; the coordinator of no store" {
	refused lib/server/shard.c '#include "sched/ledger.h"' 'is behind a wall'
	refused lib/server/store.h '#include "sched/ledger.h"' 'is behind a wall'
	refused lib/server/commit.c '#include "server/image.h"' 'is behind a wall'
	refused lib/worker/contributions.c '#include "server/store.h"' 'which is not below it'
	refused lib/sched/sched.c '#include "server/shard.h"' 'which is not below it'
}

@test "floors: nets are known where gradients are made by them, and nowhere else" {
	refused cmd/falcon-work/session.c '#include "run/task_runner.h"' 'is not for this place'
	refused cmd/falcon-work/backend_exec.c '#include "math/net.h"' 'is not for this place'
	refused lib/worker/contributions.c '#include "math/net.h"' 'is not for this place'
}

@test "floors: nobody includes a source" {
	refused tests/unit/test_base.c '#include "../../cmd/falcon-ps/publish.c"' 'is a source'
	refused cmd/falcon-ps/publish.c '#include "peers.c"' 'is a source'
}

# The command of a trainer comes from the command line alone: falcon-security(7).
@test "floors: programs are started, and code is loaded, in few places" {
	refused cmd/falcon-work/session.c 'execve(text, argv, environ);' 'that starts programs'
	refused lib/run/job_files.c 'void *p = dlopen(name, 1);' 'that starts programs'
	refused cmd/falcon-ps/controllers.c 'system (text);' 'that starts programs'
}

@test "floors: what comments and strings say does not count" {
	copy_tree
	printf '/* read(\n * write(x) */\nchar *s = "time(0)";\n// open(1)\n' \
		>>"$tmp/tree/lib/wire/bfp.c"
	run .ci/floors "$tmp/tree"
	same output "$output" ""
}

@test "circles: no two sources need each other" {
	run .ci/circles
	same output "$output" ""
	same "exit status" "$status" 0
	copy_tree
	# heap.c is below all others of its room.
	printf 'void\nfal_heap_circle(struct fal_sched *s)\n{\n\tfal_worker_refresh(s, 0, 0);\n}\n' \
		>>"$tmp/tree/lib/sched/heap.c"
	run .ci/circles "$tmp/tree"
	same "exit status" "$status" 1
	has "$output" "a circle of sources: sched/heap sched/"
}

# libm's functions round as its version and the CPU like, but for those that the standards
# make exact or correctly rounded.  Emulated machines and estimates may use all.
@test "numerics: no function of libm rounds in what decides a step" {
	local exact='sqrt fma floor ceil trunc round rint nearbyint lround llround lrint llrint
		fmin fmax fabs frexp ldexp scalbn copysign nextafter fmod'
	local libm=$tmp/libm
	nm -D --defined-only "$(${CC:-cc} -print-file-name=libm.so.6)" |
		awk '{ sub(/@.*/, "", $3); print $3 }' >"$libm"
	# Complex products and quotients round as the compiler's library likes.
	printf '__%s\n' mulsc3 muldc3 divsc3 divdc3 >>"$libm"
	run awk -v exact="$exact" '
		BEGIN { n = split(exact, w); for (i = 1; i <= n; i++) may[w[i]] = may[w[i] "f"] = 1 }
		FNR == NR { rounds[$1] = !($1 in may); next }
		/:$/ { file = $0; sub(/.*\/lib\//, "lib/", file); sub(/.*\/cmd\//, "cmd/", file) }
		$1 == "U" && rounds[$2] && !said[file]++ { print file }' \
		"$libm" <(nm -u "$bin"/lib/*/*.o "$bin"/cmd/*/*.o)
	same "objects" "$(sort <<<"$output")" "$(printf '%s\n' lib/emul/{emul,spec}.o: lib/math/rate.o:)"
}

@test "cites: what code and book say of each other is there" {
	run .ci/cites
	same output "$output" ""
	same "exit status" "$status" 0
	copy_tree
	mkdir -p "$tmp/tree/share" "$tmp/tree/tests"
	cp -r share/doc "$tmp/tree/share"
	printf '/* (design.md,\n * I999)\n * (schemes.md, none) */\n' >>"$tmp/tree/lib/wire/bfp.c"
	# shellcheck disable=SC2016 # what Markdown quotes
	printf '`fal_no_such`\n**I1. Again.**\n' >>"$tmp/tree/share/doc/design.md"
	run .ci/cites "$tmp/tree"
	same "exit status" "$status" 1
	has "$output" "lib/wire/bfp.c: cites design.md, I999"
	has "$output" "lib/wire/bfp.c: cites schemes.md, none"
	has "$output" "no function fal_no_such"
	has "$output" "stands twice: **I1."
}

@test "deps: silent when all is there, and knows its sets" {
	run share/deps build check
	same output "$output" ""
	same "exit status" "$status" 0
	run share/deps nonsense
	same "exit status" "$status" 2
}

@test "deps: elsewhere than on Debian, names what is missing and fails" {
	# A machine with a shell, and nothing else in its PATH.
	run env PATH=/nonexistent CC=false "$(command -v sh)" share/deps check
	same "exit status" "$status" 1
	has "$output" "not a Debian system; please install: "
	has "$output" "socat"
}

# bare NAME...: a folder of programs that are all a machine has, with stand-ins of NAMEs
# that fail.
bare() {
	mkdir "$tmp/bare"
	local program
	for program in sh cat mktemp mkdir rm stat dirname sed awk cmp mv id; do
		ln -s "$(command -v "$program")" "$tmp/bare"
	done
	for program; do
		printf '#!/bin/sh\nexit 1\n' >"$tmp/bare/$program"
		chmod +x "$tmp/bare/$program"
	done
}

@test "deps: a missing compiler is called that, and nothing is kept of what it did not see" {
	bare apt-get
	run env PATH="$tmp/bare" DEPS="$tmp/deps" CC=cc share/deps build
	same "exit status ($output)" "$status" 1
	same "what is missing" "${lines[0]}" "share/deps: missing: gcc libc6-dev"
	has "$output" "share/deps: could not install; as root: apt-get install gcc libc6-dev"
	same "what is kept" "$(ls "$tmp/deps" 2>/dev/null)" ""
	ln -s "$(command -v cc)" "$(command -v as)" "$(command -v ld)" "$tmp/bare"
	run env PATH="$tmp/bare:$PATH" DEPS="$tmp/deps" CC=cc share/deps build
	same "exit status ($output)" "$status" 0
	LIBCRYPTO='' CC=cc share/make/libcrypto "$tmp/libcrypto"
	same "libcrypto" "$(<"$tmp/deps/libcrypto.libs")" "$(<"$tmp/libcrypto.libs")"
}

@test "deps: packages have the names of dnf, pacman and nix there" {
	local system
	for system in dnf pacman nix-shell; do
		bare "$system"
		run env PATH="$tmp/bare" CC=cc share/deps lint
		same "exit status ($output)" "$status" 1
		case $system in
		dnf) has "$output" 'as root: dnf install gcc glibc-devel' ;;
		pacman) has "$output" 'as root: pacman -S gcc glibc bash-bats' ;;
		*) has "$output" 'nix-shell -p gcc bats perl jq gnupatch' ;;
		esac
		rm -r "$tmp/bare"
	done
	# Each package that may be asked for has a row, or one name everywhere.
	same "rows twice" "$(sed -n '/<<-END/,/^\t\tEND/p' share/deps | awk 'NF == 4 { print $1 }' |
		sort | uniq -d)" ""
}

# without_package COMMAND...: the same where Debian's Fashion-MNIST is not installed.
without_package() {
	mkdir -p "$tmp/none"
	unshare -rm sh -c 'mount --bind "$0" /usr/share/datasets && exec "$@"' "$tmp/none" "$@"
}

@test "deps and the demo take what share/data/fetch got" {
	[ -e /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"
	without_package true || skip "no namespaces"
	cp -r share "$tmp/share"
	rm -rf "$tmp/share/data/fashion"
	bare apt-get
	run without_package env PATH="$tmp/bare:$PATH" "$tmp/share/deps" demo
	same "exit status ($output)" "$status" 1
	has "$output" "share/deps: missing: dataset-fashion-mnist"
	has "$output" "share/deps: the data: share/data/fetch fashion"
	"$tmp/share/data/fetch" fashion
	run without_package "$tmp/share/deps" demo
	same "exit status ($output)" "$status" 0
	same "what is said" "$output" ""
	# What the demo's coordinator is told, and whether it is true.
	stand_in falcon-ps <<-END
		printf '%s\\n' "\$@" | sed -n '/^data[.]/p' >"$tmp/told"
		exit 1
	END
	run without_package env FALCON_BIN="$tmp/stand" DEMO_EPOCHS=1 DEMO_RATE=1000 \
		timeout 60 "$tmp/share/demo"
	local set=()
	mapfile -t set < <(sed 's/^/--set=/' "$tmp/told")
	same "files ($output)" "${#set[@]}" 4
	without_package "$bin/falcon-ps" --check "${set[@]}" "$tmp/share/jobs/fashion.job"
}

# A cblas.h of the reference BLAS: it does not know OpenBLAS's functions.
reference_blas() {
	mkdir -p "$1"
	cat >"$1/cblas.h" <<-'END'
		enum CBLAS_ORDER { CblasRowMajor = 101 };
		enum CBLAS_TRANSPOSE { CblasNoTrans = 111 };
		void cblas_sgemm(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE,
				 enum CBLAS_TRANSPOSE, int, int, int, float, const float *,
				 int, const float *, int, float, float *, int);
	END
}

@test "deps: OpenBLAS is what compiles and links, not any cblas.h" {
	reference_blas "$tmp/ref"
	local set
	share/make/openblas "$tmp/openblas"
	for set in "OPENBLAS_CFLAGS=-I$tmp/ref" OPENBLAS_LIBS=-lcblas-nonsense CC=false; do
		run env "$set" share/make/openblas "$tmp/openblas"
		same "exit status with $set" "$status" 1
		[ ! -e "$tmp/openblas" ]
	done
	share/make/openblas "$tmp/openblas"
	[ -s "$tmp/openblas.libs" ]
}

# small_tree DIR: the Makefile with two little sources and a program.
small_tree() {
	mkdir -p "$1/lib/math" "$1/cmd/falcon-work" "$1/share"
	cp Makefile "$1"
	cp -r share/deps share/make "$1/share"
	cat >"$1/lib/math/kern_blas.c" <<-'END'
		#include <cblas.h>
		void fal_small(void);
		void fal_small(void) { openblas_set_num_threads(1); }
	END
	cat >"$1/cmd/falcon-work/main.c" <<-'END'
		#include <outside.h>
		void fal_small(void);
		int main(void) { fal_small(); return OUTSIDE; }
	END
	mkdir "$1/outside"
	echo '#define OUTSIDE 0' >"$1/outside/outside.h"
}

# made TEXT [ARGUMENT...]: make says this and nothing else.
made() {
	local want=$1
	shift
	# What this check itself was made with is not its own.
	run env -u MAKEFLAGS -u MODE -u B make -j2 CPPFLAGS="-isystem outside" "$@"
	same "exit status ($output)" "$status" 0
	same "make $*" "$(sort <<<"${output//build\/release\//}" | xargs)" "$want"
}

@test "make: objects follow flags, system headers, packages; a path may have spaces" {
	small_tree "$tmp/a small tree"
	cd "$tmp/a small tree"
	local all='AR libfalcon.a CC cmd/falcon-work/main.o CC lib/math/kern_blas.o LD falcon-work'
	made "$all"
	made ''
	made "$all" CFLAGS=-O1
	made '' CFLAGS=-O1
	made "$all"
	find . -exec touch -d '1 hour ago' {} +
	made ''
	touch outside/outside.h
	made 'CC cmd/falcon-work/main.o LD falcon-work'
	# Another OpenBLAS, its files as old as a package's are.
	mkdir other
	printf '#include_next <cblas.h>\n' >other/cblas.h
	touch -d 2020-01-01 other/cblas.h
	made 'AR libfalcon.a CC lib/math/kern_blas.o LD falcon-work' \
		OPENBLAS_CFLAGS="-Iother $(cat build/release/openblas.cflags)" \
		OPENBLAS_LIBS="$(cat build/release/openblas.libs)"
}

@test "make: 32 bits, x87 registers and big-endian machines are refused in words" {
	# refused_host WORDS FLAG...: the compiler says so.
	refused_host() {
		run ${CC:-cc} -std=c17 -fsyntax-only "${@:2}" lib/base/host.c
		[ "$status" -ne 0 ]
		has "$output" "$1"
	}
	run ${CC:-cc} -std=c17 -fsyntax-only lib/base/host.c
	same "exit status ($output)" "$status" 0
	refused_host 'Falcon is for little-endian machines' -U__BYTE_ORDER__ \
		-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__
	[ "$(uname -m)" = x86_64 ] || return 0
	refused_host 'Falcon is for 64-bit machines' -m32
	refused_host 'no x87' -mfpmath=387
}

@test "make: an implicit declaration is an error, always" {
	small_tree "$tmp/tree"
	echo 'void fal_cut(void); void fal_cut(void) { char *s = nowhere(); (void)s; }' \
		>>"$tmp/tree/lib/math/kern_blas.c"
	run make -C "$tmp/tree" CPPFLAGS="-isystem outside" CFLAGS=-w
	[ "$status" -ne 0 ]
	has "$output" nowhere
}

# stand_in NAME: a program in the folder stand, its text from stdin; the others are ours.
stand_in() {
	mkdir "$tmp/stand"
	ln -s "$bin"/falcon-* "$tmp/stand"
	rm "$tmp/stand/$1"
	{ echo '#!/bin/sh'; cat; } >"$tmp/stand/$1"
	chmod +x "$tmp/stand/$1"
}

@test "the demo ends with a dead worker's last words" {
	stand_in falcon-work <<-'END'
		case $* in *worker-3*) echo out of luck >&2; kill -SEGV $$ ;; esac
		exec sleep 1000
	END
	run env FALCON_BIN="$tmp/stand" DEMO_EPOCHS=1 DEMO_RATE=1000 timeout 60 share/demo
	same "exit status ($output)" "$status" 1
	has "$output" "worker-3: SIGSEGV"
	has "$output" "out of luck"
	run grep -slF "$tmp/stand" /proc/[0-9]*/cmdline
	same "left behind" "$output" ""
}

@test "the demo ends where the coordinator does" {
	stand_in falcon-ps <<<'echo no such luck >&2; exit 1'
	run env FALCON_BIN="$tmp/stand" DEMO_EPOCHS=1 DEMO_RATE=1000 timeout 60 share/demo
	same "exit status ($output)" "$status" 1
	has "$output" "no such luck"
}

# tap SCRIPT...: prove's report of tests with these bodies.
tap() {
	local i=0 body
	for body in "$@"; do
		i=$((i + 1))
		printf '#!/bin/sh\n%s\n' "$body" >"$tmp/test$i"
		chmod +x "$tmp/test$i"
	done
	run env PERL5LIB=share/make prove --harness FalconTap --timer --jobs 2 \
		--exec share/make/tap "$tmp"/test*
}

@test "check: the last line counts what passed and failed" {
	tap 'echo 1..2; echo ok 1; echo ok 2' 'echo 1..1; echo ok 1'
	same "exit status" "$status" 0
	same "last line" "${lines[-1]}" "3 passed, 0 failed"
}

@test "check: failures, crashes and missing tests are counted" {
	tap 'echo 1..2; echo ok 1; echo not ok 2; exit 1' 'echo 1..1; echo ok 1; exit 3' \
		'echo 1..2; echo ok 1' 'exit 0'
	same "exit status" "$status" 1
	same "last line" "${lines[-1]}" "3 passed, 4 failed"
	# By a signal, as a sanitizer ends the simulator.
	mkdir "$tmp/sim"
	printf '#!/bin/sh\necho 1..1; echo ok 1; kill -ABRT $$\n' >"$tmp/sim/simulate"
	chmod +x "$tmp/sim/simulate"
	run env PERL5LIB=share/make SEEDS=1 FROM=0 FALCON_FAILED="$tmp/failed" \
		prove --harness FalconTap --exec share/make/tap "$tmp/sim/simulate"
	same "exit status" "$status" 1
	same "last line" "${lines[-1]}" "1 passed, 1 failed"
	same "the failed" "$(cat "$tmp/failed")" "$tmp/sim/simulate"
}

@test "check: what is skipped has not failed" {
	tap 'echo 1..2; echo ok 1; echo "not ok 2 # SKIP no such thing here"'
	same "exit status" "$status" 0
	same "last line" "${lines[-1]}" "2 passed, 0 failed"
}

@test "check: of tests that run at once each is told in one piece, with its seconds" {
	mkfifo "$tmp/a" "$tmp/b"
	tap "echo 1..1; echo not ok 1; echo '# it said'; echo >'$tmp/a'; read x <'$tmp/b'
			echo '# and said'" \
		"echo 1..1; read x <'$tmp/a'; echo not ok 1; echo '# so did it'; echo >'$tmp/b'" \
		'echo 1..1; echo ok 1'
	has "$output" "/test1
not ok 1
# it said
# and said
"
	has "$output" "/test2
not ok 1
# so did it
"
	[[ $output =~ test3\ \.\.\ ok\ +[0-9]+\.[0-9]\ s ]]
}

@test "check-again: what missed its time is run once more, what always fails is not" {
	again() {
		run env -i PATH=/usr/bin:/bin make -s -C "$root" check-again B="$tmp/b"
	}
	mkdir -p "$tmp/b/tests"
	again
	[ "$status" -ne 0 ]
	has "$output" "no check has failed"
	printf '@test "once" {\n\tmkdir %q\n}\n' "$tmp/done" >"$tmp/x.bats"
	export FALCON_FAILED=$tmp/b/tests/failed
	tap 'echo 1..1; echo ok 1' 'exit 3'
	same "the failed" "$(cat "$FALCON_FAILED")" "$tmp/test2"
	again
	[ "$status" -ne 0 ]
	has "$output" "fail whenever they run"
	echo "$tmp/x.bats" >"$FALCON_FAILED"
	again
	same "exit status ($output)" "$status" 0
	has "$output" "unsteady, and run again alone: $tmp/x.bats"
	again
	[ "$status" -ne 0 ]
	has "$output" "0 passed, 1 failed"
}

@test "install puts the programs there, uninstall leaves nothing" {
	small_tree "$tmp/tree"
	cp -r man "$tmp/tree"
	cp -r share/jobs share/models share/systemd share/falcon_train.py "$tmp/tree/share"
	local make=(make -s -C "$tmp/tree" CPPFLAGS="-isystem outside" DESTDIR="$tmp/dest"
		PREFIX=/usr)
	run "${make[@]}" install
	same "exit status ($output)" "$status" 0
	[ -x "$tmp/dest/usr/bin/falcon-work" ]
	[ -f "$tmp/dest/usr/share/man/man5/falcon-job.5" ]
	[ -f "$tmp/dest/usr/share/falcon/models/lenet5" ]
	[ -f "$tmp/dest/usr/share/falcon/systemd/falcon-work-gpu.conf" ]
	[ -f "$tmp/dest/usr/lib/systemd/system/falcon-ps@.service" ]
	[ -f "$tmp/dest/usr/share/bash-completion/completions/falcon-work" ]
	[ -f "$tmp/dest/usr/share/zsh/vendor-completions/_falcon-work" ]
	# The module is where the system's Python looks, and its copy alone is enough.
	PATH=/usr/bin:$PATH "${make[@]}" install
	if [ -d /usr/lib/python3/dist-packages ]; then
		(cd / && PYTHONPATH=$tmp/dest/usr/lib/python3/dist-packages /usr/bin/python3 -c \
			'import falcon_train; falcon_train.serve, falcon_train.torch')
	fi
	touch "$tmp/dest/usr/bin/other"
	PATH=/usr/bin:$PATH run "${make[@]}" uninstall
	same "exit status" "$status" 0
	same "files left" "$(find "$tmp/dest" -type f)" "$tmp/dest/usr/bin/other"
	[ ! -e "$tmp/dest/usr/share/falcon" ]
}

@test "install: the units start the programs that came with them, wherever that is" {
	local place="$tmp/an odd & 100% place"
	small_tree "$tmp/tree"
	cp -r man "$tmp/tree"
	cp -r share/jobs share/models share/systemd "$tmp/tree/share"
	mkdir "$tmp/tree/cmd/falcon-ps"
	echo 'int main(void) { return 0; }' >"$tmp/tree/cmd/falcon-ps/main.c"
	local make=(make -s -C "$tmp/tree" CPPFLAGS="-isystem outside")
	run "${make[@]}" DESTDIR="$tmp/dest" PREFIX=/opt/falcon install
	same "exit status ($output)" "$status" 0
	local name units=lib/systemd/system
	for name in ps@ work@ keys; do
		has "$(<"$tmp/dest/opt/falcon/$units/falcon-$name.service")" \
			"$([ $name != keys ] && echo "/opt/falcon/bin/falcon-${name%@}" ||
				echo /opt/falcon/bin/falcon-key)\""
		run grep @prefix@ "$tmp/dest/opt/falcon/$units/falcon-$name.service"
		same "unplaced of $name" "$output" ""
	done
	[ -f "$tmp/dest/opt/falcon/share/zsh/site-functions/_falcon-work" ]
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	run "${make[@]}" PREFIX="$place" install
	same "exit status ($output)" "$status" 0
	cp "$place/$units"/*.service "$tmp"
	for name in falcon-ps@fashion falcon-work@lab; do
		run systemd-analyze verify --man=no "$tmp/$name.service"
		same "$name: status ($output)" "$status" 0
		same "$name" "$output" ""
	done
	# And it does look for them.
	rm "$place/bin/falcon-work"
	run systemd-analyze verify --man=no "$tmp/falcon-work@lab.service"
	has "$output" "falcon-work is not executable"
}

@test "the shipped jobs name models that are there" {
	for job in share/jobs/*.job; do
		model=$(sed -n 's/^file = //p' "$job")
		[ -f "share/jobs/$model" ] || {
			echo "$job: $model is not there"
			return 1
		}
	done
}

# places JOB: the folders of its data that are not the system's.
places() {
	sed -n 's/^\(train\|test\)-\(images\|labels\) = \([^/].*\)/\3/p' "$1" |
		while read -r path; do
			realpath -m "$(dirname "$1")/$(dirname "$path")"
		done | sort -u
}

# fetched SHARE SET: fetch, where the set is there already, as published.
fetched() {
	mkdir -p "$tmp/bin" "$1/data/$2"
	touch "$1/data/$2/x"
	printf '#!/bin/sh\nexit 0\n' >"$tmp/bin/sha256sum"
	chmod +x "$tmp/bin/sha256sum"
	PATH=$tmp/bin:$PATH "$1/data/fetch" "$2"
}

@test "jobs look for their data where fetch puts them, in the sources and installed" {
	mkdir -p "$tmp/sources/share/data"
	cp Makefile "$tmp/sources"
	cp -r share/deps share/jobs share/make share/models share/systemd "$tmp/sources/share"
	cp share/data/fetch "$tmp/sources/share/data"
	for share in "$tmp/sources/share" "$tmp/dest/usr/share/falcon"; do
		for name in mnist=mnist-mlp digits=digits-softmax; do
			set=${name%=*}
			run fetched "$share" "$set"
			same "fetch $set" "$output" "$set: already in $share/data/$set"
			same "$name" "$(places "$share/jobs/${name#*=}.job")" "$share/data/$set"
		done
		# What was fetched is not installed, and no obstacle.
		run make -s -C "$tmp/sources" DESTDIR="$tmp/dest" PREFIX=/usr install
		same "exit status ($output)" "$status" 0
		has "$output" "$tmp/dest/usr/share/falcon/data/fetch"
		same "files of data" "$(grep -c share/falcon/data/ <<<"$output")" 1
	done
}

@test "fetch says what to do where it cannot write beside itself" {
	[ "$(id -u)" -ne 0 ] || command -v setpriv >/dev/null || skip "root, and no setpriv"
	mkdir -p "$tmp/share/data" "$tmp/here/data/digits"
	cp share/data/fetch "$tmp/share/data"
	touch "$tmp/here/data/digits/x"
	mkdir "$tmp/bin"
	printf '#!/bin/sh\nexit 0\n' >"$tmp/bin/sha256sum"
	chmod +x "$tmp/bin/sha256sum"
	chmod 555 "$tmp/share/data"
	cd "$tmp/here"
	local as=()
	[ "$(id -u)" -ne 0 ] || as=(setpriv --bounding-set -dac_override
		--inh-caps -dac_override)
	run env PATH="$tmp/bin:$PATH" "${as[@]}" "$tmp/share/data/fetch" digits
	chmod 755 "$tmp/share/data"
	same "exit status ($output)" "$status" 0
	same "first line" "${lines[0]}" "digits: already in data/digits"
	has "$output" "--set data.train-images=$tmp/here/data/digits/train-images-idx3-ubyte"
	has "$output" "--set data.test-labels=$tmp/here/data/digits/t10k-labels-idx1-ubyte"
	same lines "${#lines[@]}" 6
}

@test "libcrypto is optional" {
	LIBCRYPTO=no share/make/libcrypto "$tmp/found"
	[ ! -s "$tmp/found.cflags" ]
	[ ! -s "$tmp/found.libs" ]
	# What it was told has changed; and it is not to be found.
	CC='cc -nostdinc' share/make/libcrypto "$tmp/found"
	[ ! -s "$tmp/found.cflags" ]
	[ ! -s "$tmp/found.libs" ]
	# Where it is, it is said what was found.
	share/make/libcrypto "$tmp/found"
	[ ! -s "$tmp/found.libs" ] || has "$(cat "$tmp/found.cflags")" -DFAL_LIBCRYPTO
}
