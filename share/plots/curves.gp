# gnuplot -c curves.gp NUMBERS svg|png: training and test loss, and accuracy, if there are any,
# of one or several runs, by time and by samples.
numbers = ARG1
format = ARG2
load ARG0[:strlen(ARG0) - strlen("curves.gp")]."look.gp"

colour(i) = word("0x0072B2 0xD55E00 0x009E73 0xCC79A7 0xE69F00 0x56B4E9 0x000000", int(i) % 7 + 1)
names = 0
longest = 0
stats numbers index 0 using (names = names + 1, longest = strlen(strcol(2)) > longest ? \
	strlen(strcol(2)) : longest) nooutput
array called[names]
stats numbers index 0 using (called[int($1) + 1] = strcol(2), 0) nooutput
scored = 0
tested = 0
seen = 0
end = 0
points = 0
stats numbers index 1 using (scored = scored + (strcol(2) eq "accuracy"), \
	tested = tested + (strcol(2) eq "test_loss"), points = points + 1, \
	seen = $4 > seen ? $4 : seen, end = $3 > end ? $3 : end) nooutput
unit = seen >= 2e6 ? 1e6 : seen >= 2e3 ? 1e3 : 1
columns = int((wide - 40) / (9 * longest + 60))
columns = columns < 1 ? 1 : columns
above = 60 + 24 * ((names + columns - 1) / columns)
panels = scored > 0 ? 2 : 1
high = above + 300 * panels
every_th = points / names / 8 + 1
set terminal @terminal size wide,high
set border 3
set tics out
set grid ytics lc rgb "#DDDDDD" lt 1
set label 1 (tested > 0 ? "Training loss (line), test loss (dashed)" : "Training loss").\
	(panels == 2 ? ", test accuracy" : "") at screen 0.5, screen 1 - 24.0 / high center font ",18"
set key at screen 20.0 / wide, screen 1 - 50.0 / high left top maxrows (names + columns - 1) / columns \
	reverse Left
set multiplot
do for [panel = 0:2 * panels - 1] {
	kind = panel < 2 ? "training_loss" : "accuracy"
	by_samples = panel % 2
	top = above + 300 * (panel / 2)
	set lmargin at screen (90.0 + by_samples * 420) / wide
	set rmargin at screen (460.0 + by_samples * 420) / wide
	set tmargin at screen 1 - 1.0 * top / high
	set bmargin at screen 1 - (top + 214.0) / high
	set xlabel by_samples == 0 ? "time (s)" : unit == 1e6 ? "samples (millions)" : \
		unit == 1e3 ? "samples (thousands)" : "samples"
	set ylabel by_samples ? "" : kind eq "accuracy" ? "test accuracy (%)" : "loss"
	set xrange [0:by_samples ? seen / unit : end]
	set yrange [*:*]
	if (kind eq "accuracy") { set yrange [*:*<100] }
	plot for [i = 0:names - 1] numbers index 1 using \
		(int($1) == i && strcol(2) eq kind ? (by_samples ? $4 / unit : $3) : NaN):\
		($5 * (kind eq "accuracy" ? 100 : 1)) with linespoints lw 2 pt 4 + i % 10 ps 0.8 \
		pi (panel < 2 ? every_th : 1) lc rgb colour(i) title called[i + 1], \
		for [i = 0:(panel < 2 && tested > 0 ? names : 0) - 1] numbers index 1 using \
		(int($1) == i && strcol(2) eq "test_loss" ? (by_samples ? $4 / unit : $3) : NaN):5 \
		with linespoints dt 2 lw 2 pt 4 + i % 10 ps 0.5 lc rgb colour(i) notitle
	# The title and the legend are of the whole picture: once is enough.
	unset label 1
	unset key
}
unset multiplot
