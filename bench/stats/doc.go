// SPDX-License-Identifier: Apache-2.0

// Package stats computes percentiles and ratios with their intervals, and verdicts, from latency
// histograms of interleaved repeats.
//
// It refuses a percentile that the sample cannot support. It merges histograms and never averages
// percentiles across repeats. It never treats correlated samples as independent. It calls a goal
// met or missed only if the interval and the host's own noise allow it. It is pure: no clock, no
// files, and random numbers only from a given seed.
//
// # What is recorded
//
// Histograms are HdrHistograms of 1 ns to 2^37 ns (137 s) with three significant digits. Their
// buckets are at most 0.1 % wide at every percentile. So P99.999 is limited by the number of
// samples (at least a million), not by the histogram. Values outside the range are counted at its
// end, and the result says how many. A Series has one such histogram for each window of a repeat,
// about 100 ms long.
//
// # Percentiles
//
// A stall delays every request that is in flight or due, so samples come in clusters: a thousand
// samples beyond P99.9 may be five events. Intervals from order statistics of independent samples
// (Hahn and Meeker) are then far too narrow. Sample.Interval also uses order statistics, but
// corrects the number of samples. It computes how much the number beyond the percentile varies
// between groups of neighbouring windows and between repeats. From this variance follows how many
// independent samples the samples are worth (see cluster.go). These methods were rejected:
//
//   - batch quantiles (the percentile of each batch, then their mean) average
//     percentiles, which is biased in the tail, where a batch has few samples;
//   - spacing samples until they are independent (Chen and Kelton 2001, Winter
//     Simulation Conference) and the maximum transformation (Heidelberger and
//     Lewis 1984) need the raw sequence and discard most of the tail;
//   - subsampling (Politis, Romano and Wolf 1999) and the moving-block
//     bootstrap (Künsch 1989) work on the same windows, take a hundred times
//     as long, and cover less often: BenchmarkCoverage.
//
// The table has the share of stated 95 % intervals that contain the true percentile, from 200
// simulations each (go test -bench Coverage ./bench/stats):
//
//	samples                                   here   as if independent
//	exponential, P99.9 of 30,000              97 %   93 %
//	Pareto 1.5, P99.9 of 150,000              98 %   96 %
//	two modes, P99.9 beside the gap           99 %   97 %
//	autoregressive 0.99, P99 of 200,000       96 %   22 %
//	autoregressive 0.999, P99 of 300,000      94 %   10 %   40 % refused
//	M/M/1 at 70 %, P99.9 of 300,000           96 %   30 %   20 % refused
//	stalls of 5 ms, P99.5 of 300,000          98 %   15 %
//	stalls of 20 ms, P98 of 300,000           94 %   14 %   10 % refused
//	repeats that differ by 10 %, P99 of ten   97 %   37 %
//	stalls of 500 ms, P90 of 30 s             80 %    3 %   half refused
//
// The last line shows the limit of the method: the whole run has only five stalls. More repeats
// help, and a note in the result says so.
//
// # Ratios
//
// PairedRatio compares a percentile for which each repeat has enough samples. PooledRatio compares
// one for which only all repeats together have enough. UnpairedRatio compares two results that were
// measured at different times. Compare reports "~" for an interval that includes 1, for a
// difference as small as the host's own noise, and for a difference that chance may explain among
// so many comparisons. Rule says when to stop repeating. Its comment says how looking at the
// intervals after each repeat makes them less reliable.
package stats
