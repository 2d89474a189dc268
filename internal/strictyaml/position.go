// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"strings"

	"github.com/goccy/go-yaml/token"
)

// A Position in a file; both count from 1, Column in characters.
type Position struct{ Line, Column int }

func positionOf(tk *token.Token) Position {
	if tk == nil || tk.Position == nil {
		return Position{1, 1}
	}
	return Position{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// Positions are those of keys and list items, by path such as
// "lanes.redis.members[0].ports".
type Positions map[string]Position

// Of returns the position of a path. What the file does not give is found at
// the nearest thing around it that the file does give.
func (ps Positions) Of(path string) Position {
	for path != "" {
		if p, ok := ps[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return Position{1, 1}
}

// Problem is an Error of a problem that was found later, by somebody who knows
// its path only.
func (ps Positions) Problem(file, path, message string) Error {
	p := ps.Of(path)
	return Error{File: file, Line: p.Line, Column: p.Column, Path: path, Message: message}
}
