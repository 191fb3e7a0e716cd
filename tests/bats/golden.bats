# What must not change from one commit to the next: the models of short jobs, and what the
# audit says of the traces of ten schemes.

load common

@test "models and audits are those of the commits before" {
	local golden=$root/tests/golden/values
	cd "$BATS_TEST_TMPDIR"
	"$root/tests/golden/run" >got
	grep -v '^[0-9a-f]\{32\} ' got >others
	grep -v '^[0-9a-f]\{32\} \|^#' "$golden" >others.want
	case $(uname -m) in
	x86_64) ;;
	*) sed -i '/^x86_64 /d' others.want && sed -i "/^$(uname -m) /d" others ;;
	esac
	same models "$(grep '^[0-9a-f]\{32\} ' got)" "$(grep '^[0-9a-f]\{32\} ' "$golden")"
	same "the trainer's model, and audits" "$(cat others)" "$(cat others.want)"
	# However a job was cut, stopped or served, it is one model.
	same "one model" "$(awk '$2 ~ /^(plain|resumed|join|upstream)$/ { print $3 }' got |
		sort -u | wc -l)" 1
}

@test "each capability names tests that are there" {
	local file name bad=0
	while IFS=: read -r file name; do
		name=${name# }
		grep -qsF "@test \"$name\"" "$root/tests/bats/$file" || {
			echo "CAPABILITIES.md: $file has no test \"$name\""
			bad=1
		}
	done < <(grep -o '`[a-z_]*[.]bats: [^`]*`' "$root/tests/CAPABILITIES.md" | tr -d '`')
	return $bad
}
