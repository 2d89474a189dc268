// SPDX-License-Identifier: Apache-2.0

// Package proto is the generator's view of a protocol: how a request is written and where its
// reply ends.
//
// Codecs use no sockets and no clock. They keep no request in memory, because they can write it
// again. They keep no reply: a parser checks a reply piece by piece as it arrives.
package proto

// An Op is the operation of a request.
type Op uint8

// Operations.
const (
	Get Op = iota
	Set
)

// A Ticket identifies a request. It is all that a Parser needs to check the reply.
type Ticket struct {
	Index uint32 // index of the key or path
	Op    Op
}

// An Outcome says how a request ended.
type Outcome uint8

// Outcomes.
const (
	Incomplete Outcome = iota // more bytes of the reply are needed
	Good                      // as asked: a hit with the right value, a set stored, a wanted status
	Miss                      // the server has no such key
	Failed                    // an error reply, a wrong key or value, an unwanted status; the next reply can be read
)

// A Reply is the result of Parse.
type Reply struct {
	Used    int     // bytes consumed
	Outcome Outcome // Incomplete until the last byte
	Close   bool    // complete, and the server closes the connection now
	Status  int     // HTTP status, once complete
	Payload int64   // bytes of the value or body, once complete
}

// A Codec writes requests and makes parsers. It is for use by one thread.
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
	// Parse consumes bytes of the reply to t, from the start of b to at most the end of the
	// reply. While the reply is incomplete, the caller must pass the rest of b again, followed
	// by the next bytes. An error means that the stream is not a sequence of replies. The
	// connection is then of no more use.
	Parse(b []byte, t Ticket) (Reply, error)
	// Skip returns how many of the reply's next bytes Parse would only count. The caller may
	// drop them and report their number to Skipped.
	Skip() int64
	Skipped(n int64)
	// End tells the parser that the server has closed the connection. It returns the reply that
	// ends with the connection, or Incomplete.
	End() Reply
	// Problem describes the last reply that Failed.
	Problem() string
}

// Number parses a number of decimal digits. It returns false for other bytes, for more than 18
// digits, and for a number above limit.
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
