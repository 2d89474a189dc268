// SPDX-License-Identifier: Apache-2.0

// Package proto is what the generator knows of a protocol: how a request is
// written and where its reply ends.
//
// Codecs are pure: no sockets, no clock. They keep no request in memory that
// they can write again, and no reply at all: a reply is judged while it
// streams by, in whatever pieces it arrives.
package proto

// An Op is what a request does. The numbers are the index into Work's counts.
type Op uint8

// Operations.
const (
	Get Op = iota
	Set
)

// A Ticket names a request: all a Parser has to know to judge the reply.
type Ticket struct {
	Index uint32 // of the key or path
	Op    Op
}

// An Outcome of a request.
type Outcome uint8

// Outcomes.
const (
	Incomplete Outcome = iota // more bytes of the reply are needed
	Good                      // as asked: a hit with the right value, a set stored, a wanted status
	Miss                      // the server has no such key
	Failed                    // an error reply, a wrong key or value, an unwanted status; the stream is in step
)

// A Reply is what Parse found.
type Reply struct {
	Used    int     // bytes consumed
	Outcome Outcome // Incomplete until the last byte
	Close   bool    // complete, and the server closes the connection now
	Status  int     // of HTTP, once complete
	Payload int64   // bytes of the value or body, once complete
}

// A Codec writes requests and makes parsers. It is used by one thread.
type Codec interface {
	// Pick chooses a request by 64 uniformly random bits.
	Pick(random uint64) Ticket
	// Append appends the bytes of the request to b.
	Append(b []byte, t Ticket) []byte
	// Parser returns a parser for one connection.
	Parser() Parser
}

// A Parser follows the replies on one connection.
type Parser interface {
	// Parse consumes bytes of the reply to t, from the start of b to the end
	// of the reply at most. What it leaves of b while the reply is incomplete
	// must be offered again with what follows. An error means that the stream
	// cannot be one of replies: the connection is out of step.
	Parse(b []byte, t Ticket) (Reply, error)
	// Skip returns how many bytes of the reply come next that Parse would
	// only count. They may be dropped and told to Skipped instead.
	Skip() int64
	Skipped(n int64)
	// End is told that the server has closed the connection and returns the
	// reply that ends with it, Incomplete if there is none.
	End() Reply
	// Problem describes the last reply that Failed.
	Problem() string
}

// Number parses decimal digits, at most limit.
func Number(b []byte, limit int64) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= limit
}
