# table.jq: the cells of summary.jq as a table for people, a block for each pattern.

def left($n): tostring | . + " " * ($n - length);
def right($n): tostring | " " * ($n - length) + .;
def percent($n): (.value * 1000 | round / 10 | tostring
	| if test("[.]") then . else . + ".0" end) | right($n);
def fixed($d): if . == null then ">\($cap)" else pow(10; $d) as $p | . * $p | round / $p end;
def seconds: (.value | fixed(1)) as $v
	| "\($v) (\(.min | fixed(1)) to \(.max | fixed(1)))";
def stale: map("\(.class): \(.share * 100 | round)") | join(", ");

def title: [("SCHEME" | left(10)), ("LR" | right(6)), ("RUNS" | right(5)),
	("SECONDS" | right(22)), ("UPDATES" | right(8)), ("ACC." | right(6)),
	("CAP.%" | right(6)), ("TASKS%" | right(7)), ("COMP.%" | right(7)),
	("IDLE%" | right(6)), ("DROP%" | right(6)), ("DUP.%" | right(6)),
	("MOVED%" | right(7)), ("  STALENESS: % OF SAMPLES")] | join("");
def row: .figures as $f | if $f == null then (.scheme | left(10)) + "  "
		+ (.failed[-1] // "there was no time for it")
	else [(.scheme | left(10)), (.lr | right(6)),
		("\(.runs - (.failed | length))/\(.runs)" | right(5)),
		($f["to-target"] | seconds | right(22)),
		($f["updates-to-target"].value // "-" | right(8)),
		($f.accuracy.value // "-" | right(6)),
		($f["of-capacity"] | percent(6)), ($f["of-whole-tasks"] | percent(7)),
		($f.compute | percent(7)), ($f.idle | percent(6)), ($f.dropped | percent(6)),
		($f.duplicated | percent(6)), ($f.moved | percent(7)),
		("  " + (.staleness | stale))] | join("") end;

. as $cells
| (reduce .[].pattern as $p ([]; if index($p) or $p == "mlp" then . else . + [$p] end)
	| .[] | . as $pattern | "pattern \($pattern)", title,
		($cells[] | select(.pattern == $pattern) | row), ""),
"traffic of an update, perceptron of 669,706 parameters, pattern none",
(.[] | select(.pattern == "mlp") | (.scheme | left(10))
	+ if .figures then ((.figures["bytes-per-update"].value / 1e6 * 100 | round / 100)
		| right(10)) + " MB" else "  " + .failed[0] end)
