# A row for each pattern and scheme whose trace was shown, its error in per cent for each scheme
# predicted; then the figures.
def pad($n): tostring | if length < $n then . + " " * ($n - length) else . end;
def lpad($n): tostring | if length < $n then " " * ($n - length) + . else . end;
def pc: . * 1000 | round / 10;

(.pairs | map(.to) | unique) as $to
| "Error of predicted seconds per epoch, %; rows: whose trace was shown\n",
  (["pattern" | pad(8)] + ["shown" | pad(18)] + ($to | map(.[0:9] | lpad(10))) | join("")),
  (.pairs | group_by([.pattern, .from, .seed])[] | . as $row
	| ([$row[0].pattern | pad(8)] + [$row[0].from | pad(18)]
		+ ($to | map(. as $t | $row | map(select(.to == $t) | .error | pc) | (.[0] // "-")
			| lpad(10))) | join(""))),
  "",
  (.figures | to_entries[] | "\(.key | pad(24)) \(if .value == null then "-"
	else "\(.value | pc) %" end)")
