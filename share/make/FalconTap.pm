# prove's own harness and report; then what the failed tests said, and "N passed, N
# failed" alone on the last line.
package FalconTap;
use strict;
use warnings;
use parent 'TAP::Harness';

# Keeps the lines of failed tests: "not ok", and the comments after it.
sub new {
	my ($class, @args) = @_;
	my $self = $class->SUPER::new(@args);
	$self->callback(made_parser => sub {
		my ($parser, $test) = @_;
		my $failed = 0;
		$parser->callback(test => sub {
			$failed = !$_[0]->is_ok;
			$self->{said} .= "$test->[0]\n" . $_[0]->raw . "\n" if $failed;
		});
		$parser->callback(comment => sub {
			$self->{said} .= $_[0]->raw . "\n" if $failed;
		});
	});
	return $self;
}

sub summary {
	my ($self, $all) = @_;
	$self->SUPER::summary($all);
	print "\n$self->{said}\n" if defined $self->{said};

	# A program that dies, or runs other than the tests it planned, has failed too,
	# even where each test that it reported passed.
	my $failed = $all->failed;
	for my $parser ($all->parsers($all->descriptions)) {
		$failed++ if !$parser->failed && ($parser->parse_errors || $parser->exit);
	}
	printf "%d passed, %d failed\n", scalar $all->passed, $failed;
}

1;
