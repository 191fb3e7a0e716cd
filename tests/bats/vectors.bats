# share/vectors: what others test their programs with.

load common

setup() {
	cd "$BATS_TEST_TMPDIR"
}

@test "they are made anew as they are" {
	[ -x "$bin/tests/make-vectors" ] || skip "make-vectors is not built"
	"$bin/tests/make-vectors" .
	for file in "$root"/share/vectors/*.txt; do
		# A CPU without instructions for AES may not make this one.
		[ "${file##*/}" != aes.txt ] || [ -e aes.txt ] || continue
		cmp "$file" "${file##*/}"
	done
}

@test "a client written from the page agrees with them" {
	needs_cryptography
	/usr/bin/python3 "$root/tests/client/vectors.py" "$root/share/vectors" >said
	same said "$(cat said)" "73 vectors"
}

@test "it does not where one was changed" {
	needs_cryptography
	cp -r "$root/share/vectors" changed
	for file in handshake records aes blocks; do
		sed 's/^expect: ok/expect: refused/' "$root/share/vectors/$file.txt" \
			>"changed/$file.txt"
		run /usr/bin/python3 "$root/tests/client/vectors.py" changed
		same status "$status" 1
		has "$output" "$file.txt: "
		cp "$root/share/vectors/$file.txt" "changed/$file.txt"
	done
}
