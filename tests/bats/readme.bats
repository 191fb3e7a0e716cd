#!/usr/bin/env bats
# What README.md and share/doc/pytorch.md print is so.  man.bats runs README's session by
# hand, tests/torch/tutorial the commands of pytorch.md.

load common
load job
load tiny

setup() {
	for_test
	cp "$root/README.md" "$root/share/doc/pytorch.md" .
	# Indented lines and those behind a host's prompt; what sentences have in backquotes.
	sed -nE 's/^(    |[a-z0-9]+\$ )//p' ./*.md >code
	sed 's/^```.*//' ./*.md | tr '\n' ' ' | grep -o '`[^`]*`' | tr -d '`' >words
}

# lacking FILE OTHER: the lines of FILE that OTHER does not have.
lacking() {
	grep -vxFf "$2" "$1" || :
}

@test "each command, option and target of make is there" {
	local line name word commands=0
	while read -r line; do
		commands=$((commands + 1))
		# An unknown option ends a program before --help is read.
		eval "$line --help" >help || same "$line" refused taken
		word=$(grep -oE ' (init|add|show|set|apply)\b' <<<"$line" | head -n 1)
		grep -qE "[] |]${word# }([ |]|\$)" help || same "$line" "no word$word" "a word"
	done < <(sed 's/ [|&]*$//' code | grep -E '^falcon-[a-z]+ ')
	same "commands ($commands)" "$((commands >= 25))" 1
	# In a sentence an option may lack its value, or its program.
	awk '/^falcon-/ { for (i = 2; i <= NF; i++) if ($i ~ /^--/) print $1, $i }
		/^--/ { print "any", $1 }' words >named
	for name in ps work stat proj sync key; do
		"falcon-$name" --help | grep -oE -- '--[a-z-]+' | sed "s/.*/falcon-$name &\nany &/"
	done >options
	same options "$(lacking named options)" ""
	sed -nE 's/^make ([a-z-]+)( .*)?$/\1/p' code words >named
	sed -nE 's/^([a-z -]+):.*/\1/p' "$root"/Makefile "$root"/share/make/*.mk | tr ' ' '\n' >targets
	same targets "$(lacking named targets)" ""
}

@test "each file, link and page of the manual is there, and README names all pages" {
	(cd "$root" && sed -nE 's/.*\]\(([^):]+)\).*/\1/p' README.md | xargs ls -d) >links
	same links "$(($(wc -l <links) >= 8))" 1
	(cd "$root" && grep -E '^(examples|share|lib|cmd|tests)/[^ ]*$' "$OLDPWD/words" | xargs ls -d)
	grep -ohE 'falcon(-[a-z]+)?\([157]\)' ./*.md | sed 's/(\(.\))/.\1/' | sort -u >named
	same "pages" "$(<named)" "$(cd "$root/man" && printf '%s\n' * | sort)"
}

@test "README has the schemes of the parser, and counts right" {
	local count names number=([10]=Ten Eleven Twelve Thirteen Fourteen)
	IFS='|' read -r _ count names _ < <(grep ' schemes |' README.md)
	run falcon-ps --check --set sync.scheme=none "$root/share/jobs/fashion.job"
	mapfile -t schemes < <(grep -oE '[a-z]+' <<<"${names%%:*}")
	same schemes "${schemes[*]}" "$(sed 's/.*(\(.*\))/\1/; s/,//g' <<<"$output")"
	same number "$count" " ${number[${#schemes[@]}]} schemes "
	has "$(<README.md)" "$(grep -c '^## ' "$root/share/doc/stories.md" | sed 's/^6$/six/') walks"
	has "$(<README.md)" "$(grep -c '^| \[' "$root/share/doc/peers.md" | sed 's/^7$/seven/') others"
}

# figures NAME...: those of tests/experiments/figures, as a row of a table.
figures() {
	local name
	for name; do
		sed -n "s/^${name/\//.} /| /p" "$root/tests/experiments/figures" | grep . || echo "no $name"
	done | paste -sd' ' | sed 's/$/ |/'
}

@test "README's tables have the figures that were measured" {
	local name
	has "$(<README.md)" "on $(date -d "$(figures date | tr -d '| ')" '+%-d %B %Y'), "
	for name in p1:4 p2; do
		has "$(grep '^| ' README.md)" "$(figures "$name "{epsp,flexrr,syncopt,consgd,dynsgd})"
	done
	for name in epsp:1/4 asp epsp bsp; do
		has "$(grep "^|.*\b$name\b" README.md)" "$(figures "$name "{0,5,20,50}ms)"
	done
	local updates kills faults lost
	read -r _ updates _ kills _ faults _ lost _ <<<"$(figures updates kills faults lost)"
	local readme
	readme=$(tr '\n' ' ' <README.md)
	has "$readme" " $updates updates with one, then eight, then three workers, and $kills kills"
	has "$readme" " $faults in all) a fault costs $lost machine-seconds"
}

# check-accuracy trains the job of the demo, and compares accuracy and model.
@test "make demo ends as README shows" {
	sed -n '/^    test accuracy/,/^$/s/^    //p' README.md >shown
	tiny .
	small_demo
	"$root/share/demo" | sed -E 's/   *.*//' >said
	same lines "$(wc -l <shown)" 6
	same labels "$(sed -E 's/   *.*//' shown)" "$(tail -n 9 said | head -n 6)"
	same models "$(sed -n "s/.*'s model *//p" shown | uniq | wc -l)" 1
}
