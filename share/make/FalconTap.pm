# prove's own harness and report; then "N passed, N failed" alone on the last line.
package FalconTap;
use strict;
use warnings;
use parent 'TAP::Harness';

sub summary {
	my ($self, $all) = @_;
	$self->SUPER::summary($all);

	# A program that dies, or runs other than the tests it planned, has failed too,
	# even where each test that it reported passed.
	my $failed = $all->failed;
	for my $parser ($all->parsers($all->descriptions)) {
		$failed++ if !$parser->failed && ($parser->parse_errors || $parser->exit);
	}
	printf "%d passed, %d failed\n", scalar $all->passed, $failed;
}

1;
