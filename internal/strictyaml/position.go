// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"strings"

	"github.com/goccy/go-yaml/token"
)

// A Position is a place in a file. Line and Column count from 1; Column counts characters.
type Position struct{ Line, Column int }

func positionOf(tk *token.Token) Position {
	if tk == nil || tk.Position == nil {
		return Position{1, 1}
	}
	return Position{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// Positions are the positions of keys and list items, by path such as
// "lanes.redis.members[0].ports".
type Positions map[string]Position

// Of returns the position of a path. If the file does not contain it, Of returns the position
// of the nearest enclosing path that it contains.
func (ps Positions) Of(path string) Position {
	for path != "" {
		if p, ok := ps[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return Position{1, 1}
}

// Problem returns an Error for a problem that was found after reading. path is its place.
func (ps Positions) Problem(file, path, message string) Error {
	p := ps.Of(path)
	return Error{File: file, Line: p.Line, Column: p.Column, Path: path, Message: message}
}
