// SPDX-License-Identifier: Apache-2.0

package trial

import "math/rand/v2"

// An order gives the sequence of variants in each round. Rounds come in blocks. The rounds of a block
// are the rows of a Williams design (1949, Australian Journal of Scientific Research A 2): each variant
// is at each place, and follows each other one, equally often. So a steady drift and the after-effects
// of a variant favour none. The order of the rows and the names of the variants are random. So the
// signs of the differences within rounds are random too, and a test of them holds however windows
// depend on each other (Fisher 1935, The Design of Experiments). In blocks of few rounds the signs
// would depend on each other: with two variants, 6 % of 95 % intervals would miss the truth if neighbouring
// windows are alike, and 5 % with blocks of blockRounds (TestOrderKeepsIntervals). So a block repeats
// its rows: with two variants, it has four rounds AB and four BA.
type order struct {
	n      int
	random *rand.Rand
	left   [][]int // rounds of this block
}

// blockRounds is the least number of rounds of a block.
const blockRounds = 8

func newOrder(n int, seed uint64) *order {
	return &order{n: n, random: rand.New(rand.NewPCG(seed, 0x7472_6961_6c))}
}

// next returns the variants of the next round, 0 to n-1.
func (o *order) next() []int {
	if len(o.left) == 0 {
		for len(o.left) < blockRounds {
			o.left = append(o.left, williams(o.n)...)
		}
		names := o.random.Perm(o.n)
		for _, row := range o.left {
			for i := range row {
				row[i] = names[row[i]]
			}
		}
		o.random.Shuffle(len(o.left), func(i, j int) { o.left[i], o.left[j] = o.left[j], o.left[i] })
	}
	row := o.left[0]
	o.left = o.left[1:]
	return row
}

// williams returns the rows of a Williams design: n rows for an even n, 2n for an odd one.
func williams(n int) (rows [][]int) {
	first := make([]int, n) // 0, n-1, 1, n-2, ...
	for i := range first {
		first[i] = i / 2
		if i%2 == 1 {
			first[i] = n - 1 - i/2
		}
	}
	for shift := range n {
		row := make([]int, n)
		for i, v := range first {
			row[i] = (v + shift) % n
		}
		rows = append(rows, row)
	}
	if n%2 == 0 {
		return rows
	}
	for _, row := range rows[:n] {
		mirror := make([]int, n)
		for i, v := range row {
			mirror[n-1-i] = v
		}
		rows = append(rows, mirror)
	}
	return rows
}
