# table.jq: the cells of summary.jq as a table for people, a block for each pattern.

def left($n): tostring | . + " " * ($n - length);
def right($n): tostring | " " * ($n - length) + .;
# With one digit behind the point.
def tenths: . * 10 | round / 10 | tostring | if test("[.]") then . else . + ".0" end;
def percent($n): .value * 100 | tenths | right($n);
def time: if . == null then ">\($cap)" else tenths end;
def seconds: "\(.value | time) (\(.min | time) to \(.max | time))";
def stale: map("\(.class): \(.share * 100 | tenths)") | join(", ");

def title: [("SCHEME" | left(19)), ("LR" | right(8)), ("RUNS" | right(5)),
	("SECONDS" | right(22)), ("UPDATES" | right(8)), ("ACC." | right(7)),
	("CAP.%" | right(7)), ("TASKS%" | right(7)), ("COMP.%" | right(7)),
	("IDLE%" | right(6)), ("DROP%" | right(6)), ("DUP.%" | right(6)),
	("MOVED%" | right(7)), ("  STALENESS: % OF SAMPLES")] | join("");
def row: .figures as $f | if $f == null then (.scheme | left(19)) + "  "
		+ (.failed[-1] // "there was no time for it")
	else [(.scheme | left(19)), (.lr | right(8)),
		("\(.runs - (.failed | length))/\(.runs)" | right(5)),
		($f["to-target"] | seconds | right(22)),
		($f["updates-to-target"].value // "-" | right(8)),
		($f.accuracy.value // 0 | . * 1000 | round / 1000 | right(7)),
		($f["of-capacity"] | percent(7)), ($f["of-whole-tasks"] | percent(7)),
		($f.compute | percent(7)), ($f.idle | percent(6)), ($f.dropped | percent(6)),
		($f.duplicated | percent(6)), ($f.moved | percent(7)),
		("  " + (.staleness | stale))] | join("") end;

. as $cells
| (reduce .[].pattern as $p ([]; if index($p) or $p == "mlp" then . else . + [$p] end)
	| .[] | . as $pattern | "pattern \($pattern)", title,
		($cells[] | select(.pattern == $pattern) | row), ""),
"traffic of an update, perceptron of 669,706 parameters, pattern none",
(.[] | select(.pattern == "mlp") | (.scheme | left(19))
	+ if .figures then ((.figures["bytes-per-update"].value / 1e6 * 100 | round / 100)
		| right(10)) + " MB" else "  " + .failed[0] end)
