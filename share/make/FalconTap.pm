# prove's own harness and report; then what the failed tests said, and "N passed, N
# failed" alone on the last line.  The file FALCON_FAILED gets the names of those that
# failed.
package FalconTap;
use strict;
use warnings;
use parent 'TAP::Harness';
use TAP::Formatter::Session;

# How long each test took, without prove's CPU seconds: of tests that run beside each
# other they would be everybody's.
{
	no warnings 'redefine';
	*TAP::Formatter::Session::time_report = sub {
		my ($self, $formatter, $parser) = @_;
		return '' if !$formatter->timer || !defined $parser->end_time;
		return sprintf ' %7.1f s', $parser->end_time - $parser->start_time;
	};
}

# Keeps the lines of failed tests: "not ok", and the comments after it.
sub new {
	my ($class, @args) = @_;
	my $self = $class->SUPER::new(@args);
	$self->callback(made_parser => sub {
		my ($parser, $test) = @_;
		my $failed = 0;
		my $said = \($self->{said}{$test->[0]} = '');
		$parser->callback(test => sub {
			$failed = !$_[0]->is_ok;
			$$said .= "$test->[0]\n" . $_[0]->raw . "\n" if $failed;
		});
		$parser->callback(comment => sub {
			$$said .= $_[0]->raw . "\n" if $failed;
		});
	});
	return $self;
}

sub summary {
	my ($self, $all) = @_;
	$self->SUPER::summary($all);
	my $said = join '', map { $self->{said}{$_} // '' } $all->descriptions;
	print "\n$said\n" if $said ne '';

	# A program that dies, or runs other than the tests it planned, has failed too,
	# even where each test that it reported passed.
	my $failed = $all->failed;
	my @names;
	for my $name ($all->descriptions) {
		my ($parser) = $all->parsers($name);
		my $broke = $parser->parse_errors || $parser->wait;
		$failed++ if !$parser->failed && $broke;
		push @names, $name if $parser->failed || $broke;
	}
	if (my $path = $ENV{FALCON_FAILED}) {
		open my $out, '>', $path or die "$path: $!\n";
		print $out map { "$_\n" } @names;
		close $out or die "$path: $!\n";
	}
	printf "%d passed, %d failed\n", scalar $all->passed, $failed;
}

1;
