// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An RSSTable is the indirection table of one RSS context. Context 0 is the default and always
// exists. niclane makes the others and chooses their numbers.
type RSSTable struct {
	Dev     string `json:"dev"`
	Context int    `json:"context"`
	// Queues is the table: the queue of each entry.
	Queues []int `json:"queues"`
	// Configured says that a user has set the table; otherwise it is the driver's own
	// (netif_is_rxfh_configured). Only context 0 uses it.
	Configured bool `json:"configured,omitempty"`
}

// Kind implements Object.
func (RSSTable) Kind() string { return "rss" }

// Key implements Object.
func (t RSSTable) Key() string { return fmt.Sprintf("rss/%s/%d", t.Dev, t.Context) }

// Brief implements Object.
func (t RSSTable) Brief() string { return "queues " + queueSet(t.Queues) }

func (t RSSTable) commands(c Change) []string {
	if c.New == nil {
		return one(fmt.Sprintf("ethtool -X %s context %d delete", t.Dev, t.Context))
	}
	where := ""
	switch {
	case t.Context > 0 && c.Old == nil:
		where = " context new"
	case t.Context > 0:
		where = fmt.Sprintf(" context %d", t.Context)
	}
	if t.Context == 0 && !t.Configured {
		return one(fmt.Sprintf("ethtool -X %s default", t.Dev))
	}
	if first, n, ok := equalSpread(t.Queues); ok {
		if first > 0 {
			where += fmt.Sprintf(" start %d", first)
		}
		return one(fmt.Sprintf("ethtool -X %s%s equal %d", t.Dev, where, n))
	}
	most := 0
	for _, q := range t.Queues {
		most = max(most, q)
	}
	weights := make([]int, most+1)
	for _, q := range t.Queues {
		weights[q]++
	}
	return one(fmt.Sprintf("ethtool -X %s%s weight %s", t.Dev, where, strings.Trim(fmt.Sprint(weights), "[]")))
}

func (t RSSTable) equal(o Object) bool {
	b, ok := o.(RSSTable)
	if !ok || t.Key() != b.Key() || t.Configured != b.Configured {
		return false
	}
	// A table that no user has set is the driver's own. The driver changes it with the channels.
	return t.Context == 0 && !t.Configured || sameTable(t.Queues, b.Queues)
}

// sameTable reports whether two RSS tables lead the same packets to the same queues. They do if
// they are equal, or if one is a repetition of the other. On some cards, the table's size follows
// the number of channels (mlx5: en/rqt.c: mlx5e_rqt_size).
func sameTable(a, b []int) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) == 0 || len(b)%len(a) != 0 {
		return len(a) == len(b)
	}
	for ; len(b) > 0; b = b[len(a):] {
		if !slices.Equal(a, b[:len(a)]) {
			return false
		}
	}
	return true
}

// OfClasses returns the default table on a card whose traffic classes have receive queues. While
// the classes of q are there, it has the default class's queues, otherwise all queues.
func (t RSSTable) OfClasses(q Qdisc, queues int, there bool) RSSTable {
	first, _, _ := strings.Cut(q.Queues, "@")
	n, err := strconv.Atoi(first)
	if !there || err != nil || n < 1 {
		n = queues
	}
	t.Queues, t.Configured = slices.Clone(t.Queues), n < queues
	for i := range t.Queues {
		t.Queues[i] = i % max(n, 1)
	}
	return t
}

// equalSpread reports whether ethtool -X makes this table with "start first equal n". If so, it
// returns first and n.
func equalSpread(table []int) (first, n int, ok bool) {
	if len(table) == 0 {
		return 0, 0, false
	}
	first = table[0]
	n = 1
	for n < len(table) && table[n] == first+n {
		n++
	}
	for i, q := range table {
		if q != first+i%n {
			return 0, 0, false
		}
	}
	return first, n, true
}

// queueSet returns the distinct queues of an indirection table as a list.
func queueSet(table []int) string {
	seen := map[int]bool{}
	most := 0
	for _, q := range table {
		seen[q] = true
		most = max(most, q)
	}
	var ids []int
	for q := range most + 1 {
		if seen[q] {
			ids = append(ids, q)
		}
	}
	return FormatCPUList(ids)
}
