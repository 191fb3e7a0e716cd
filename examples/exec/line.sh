#!/bin/sh
# A trainer in shell and awk, a toy that shows falcon-gradient(7) at work, with pipes in the
# place of shared memory.  Sample i is x = (i mod 16) / 16.  The trainer fits y = 3x - 1 by
# the first weight and the last tensor's first value, and leaves all other parameters alone.
#
#	falcon-work --exec 'exec examples/exec/line.sh' ADDR
export LC_ALL=C
file=$(mktemp)
trap 'rm -f "$file" "$file.grad"' EXIT

# frame: reads a file from the parameters' pipe: its length, then its bytes.
frame() {
	length=$(head -c 8 | od -An -t u8)
	head -c $((length)) >"$file"
}

# member KEY: prints a number of $line.
member() {
	expr "$line" : ".*\"$1\":\([0-9]*\)"
}

# Writes the gradient of the sum of squares to standard output, float32, and the loss to 3.
gradient() {
	awk '
	function f32(v, s, e, m) {
		s = v < 0 ? 128 : 0; v = v < 0 ? -v : v
		if (v < 2 ^ -126) { printf "%c%c%c%c", 0, 0, 0, 0; return }
		for (e = 127; v >= 2; e++) v /= 2
		for (; v < 1; e--) v *= 2
		m = int((v - 1) * 8388608 + 0.5)
		if (m == 8388608) { m = 0; e++ }
		printf "%c%c%c%c", m % 256, int(m / 256) % 256,
			int(m / 65536) + e % 2 * 128, s + int(e / 2)
	}
	NR == 1 { n = split($0, index_, ","); next }
	NR == 2 { bias = $1; next }
	{ for (i = 1; i <= NF; i++) p[k++] = $i }
	END {
		for (i = 1; i <= n; i++) {
			x = index_[i] % 16 / 16
			off = p[0] * x + p[bias] - (3 * x - 1)
			loss += off * off; dw += 2 * off * x; db += 2 * off
		}
		for (i = 0; i < k; i++) f32(i == 0 ? dw : i == bias ? db : 0)
		print loss + 0 >"/dev/fd/3"
	}'
}

while read -r line; do
	case $line in
	*'"op":"hello"'*) echo '{"op":"hello","protocol":1,"pipes":true,"about":"awk"}' ;;
	*'"op":"params"'*)
		frame <&"$FALCON_PARAMS_PIPE"
		header=$(head -c 8 "$file" | od -An -t u8)
		bytes=$((length - 8 - header))
		# Where the last tensor begins, in floats.
		bias=$(head -c $((8 + header)) "$file" |
			sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
		;;
	*'"op":"task"'*)
		indices=${line##*\[}
		loss=$({ { echo "${indices%%\]*}" && echo $((bias / 4)) &&
			tail -c "$bytes" "$file" | od -An -v -t f4; } | gradient; } \
			3>&1 >"$file.grad")
		case $line in
		*'"kind":"train"'*)
			awk -v n="$bytes" 'BEGIN { for (; i++ < 8; n = int(n / 256))
				printf "%c", n % 256 }' >&"$FALCON_GRADS_PIPE"
			cat "$file.grad" >&"$FALCON_GRADS_PIPE"
			;;
		esac
		echo "{\"op\":\"done\",\"id\":$(member id),\"loss\":$loss}"
		;;
	esac
done
