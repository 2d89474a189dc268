// SPDX-License-Identifier: Apache-2.0

package memserver

import (
	"bytes"
	"strconv"
)

const (
	maxKey  = 250  // bytes, as in memcached
	maxLine = 2048 // bytes of a command line, memcached's own bound for a get
)

// verb of a request.
type verb uint8

const (
	verbNone verb = iota // more bytes are needed
	verbGet
	verbGets
	verbSet
	verbDelete
	verbStats
	verbVersion
	verbVerbosity
	verbQuit
	verbBad // answered with request.reply
)

// A request points into the buffer from which it was parsed.
type request struct {
	verb    verb
	size    int      // bytes of the whole request
	keys    [][]byte // get, gets
	key     []byte   // set, delete
	value   []byte   // set
	flags   uint32
	exptime int64
	noreply bool
	reply   string // verbBad: the answer
	skip    int    // verbBad: bytes of data still to be discarded after size
	fatal   bool   // verbBad: close after the answer
}

const (
	replyError   = "ERROR\r\n"
	replyFormat  = "CLIENT_ERROR bad command line format\r\n"
	replyChunk   = "CLIENT_ERROR bad data chunk\r\n"
	replyTooBig  = "SERVER_ERROR object too large for cache\r\n"
	replyTooLong = "CLIENT_ERROR line too long\r\n"
)

func bad(size int, reply string) request { return request{verb: verbBad, size: size, reply: reply} }

// parse reads the request at the start of b. keys is scratch space for the keys of a get. It
// returns verbNone while bytes are missing and never reads beyond b. Every other request has a
// size above 0.
func parse(b []byte, maxValue int, keys [][]byte) request {
	n := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	if n < 0 {
		if len(b) >= maxLine {
			r := bad(len(b), replyTooLong)
			r.fatal = true // the start of the next command is unknown
			return r
		}
		return request{}
	}
	line := b[:n]
	if n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	size := n + 1
	word, rest := token(line)
	switch string(word) {
	case "get", "gets":
		r := request{verb: verbGet, size: size, keys: keys[:0]}
		if len(word) == 4 {
			r.verb = verbGets
		}
		for {
			var key []byte
			if key, rest = token(rest); len(key) == 0 {
				break
			}
			if !goodKey(key) {
				return bad(size, replyFormat)
			}
			r.keys = append(r.keys, key)
		}
		if len(r.keys) == 0 {
			return bad(size, replyError)
		}
		return r
	case "set":
		return parseSet(b, rest, size, maxValue)
	case "delete":
		r := request{verb: verbDelete, size: size}
		r.key, rest = token(rest)
		arg, rest := token(rest)
		if string(arg) == "0" { // an obsolete argument, still accepted by memcached
			arg, rest = token(rest)
		}
		r.noreply = string(arg) == "noreply"
		if end, _ := token(rest); !goodKey(r.key) || len(end) > 0 || len(arg) > 0 && !r.noreply {
			return bad(size, replyFormat)
		}
		return r
	case "stats":
		return request{verb: verbStats, size: size}
	case "version":
		return request{verb: verbVersion, size: size}
	case "verbosity":
		return request{verb: verbVerbosity, size: size, noreply: bytes.HasSuffix(rest, []byte("noreply"))}
	case "quit":
		return request{verb: verbQuit, size: size}
	}
	return bad(size, replyError)
}

// parseSet reads "set KEY FLAGS EXPTIME BYTES [noreply]" and its data block.
func parseSet(b, args []byte, size, maxValue int) request {
	r := request{verb: verbSet}
	var f [4][]byte
	for i := range f {
		f[i], args = token(args)
	}
	opt, args := token(args)
	end, _ := token(args)
	flags, err1 := strconv.ParseUint(string(f[1]), 10, 32)
	exptime, err2 := strconv.ParseInt(string(f[2]), 10, 64)
	length, err3 := strconv.ParseUint(string(f[3]), 10, 31)
	r.noreply = string(opt) == "noreply"
	if err1 != nil || err2 != nil || err3 != nil || len(end) > 0 || len(opt) > 0 && !r.noreply {
		return bad(size, replyFormat)
	}
	if !goodKey(f[0]) {
		r := bad(size, replyFormat)
		r.skip = int(length) + 2
		return r
	}
	if length > uint64(maxValue) {
		r := bad(size, replyTooBig)
		r.skip = int(length) + 2
		return r
	}
	v := int(length)
	if len(b) < size+v+2 {
		return request{}
	}
	r.size = size + v + 2
	if b[size+v] != '\r' || b[size+v+1] != '\n' {
		r := bad(r.size, replyChunk)
		r.fatal = true // the data may be commands
		return r
	}
	r.key, r.value = f[0], b[size:size+v]
	r.flags, r.exptime = uint32(flags), exptime
	return r
}

// token returns the first word of line, and the rest.
func token(line []byte) (word, rest []byte) {
	i := 0
	for i < len(line) && line[i] == ' ' {
		i++
	}
	j := i
	for j < len(line) && line[j] != ' ' {
		j++
	}
	return line[i:j], line[j:]
}

// goodKey reports whether key has 1 to 250 bytes, without blanks and control characters.
func goodKey(key []byte) bool {
	if len(key) == 0 || len(key) > maxKey {
		return false
	}
	for _, c := range key {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
