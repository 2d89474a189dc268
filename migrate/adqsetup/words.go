// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// readWords reads the words after adqsetup's command create, such as "[web] queues 4 ports 80,443
// [db] queues 2 ports 5432". The first section's name may lack brackets. The number of a key's word
// is used as its line.
func readWords(r *strictyaml.Reader, words []string) []section {
	for i, w := range words {
		if !printable(r, w) || strings.ContainsAny(w, "\r\n") {
			fail(r, i+1, "", "found %s, want printable text", strictyaml.Quote(w))
			return nil
		}
	}
	if len(words) == 0 {
		fail(r, 1, "", "found nothing, want [NAME] KEY VALUE ...: [web] queues 4 ports 80")
		return nil
	}
	var all []section
	var here *section
	for i := 0; i < len(words); {
		name, bracketed := inBrackets(words[i])
		if i == 0 || bracketed {
			if name == "" {
				fail(r, i+1, "", "found %s, want [globals] or the name of an application in brackets",
					strictyaml.Quote(words[i]))
				return nil
			}
			if again(r, all, name, i+1) {
				return nil
			}
			all = append(all, section{name: name, line: i + 1, words: true})
			here = &all[len(all)-1]
			i++
			continue
		}
		if i+1 == len(words) {
			fail(r, i+1, strictyaml.Join(here.name, normal(words[i])), "has no value after it")
			return nil
		}
		if _, next := inBrackets(words[i+1]); next {
			fail(r, i+1, strictyaml.Join(here.name, normal(words[i])), "has no value after it, but %s",
				strictyaml.Quote(words[i+1]))
			return nil
		}
		here.add(r, words[i], words[i+1], i+1)
		i += 2
	}
	return all
}

// inBrackets returns a word without its brackets, and whether it had brackets.
func inBrackets(word string) (name string, is bool) {
	if len(word) > 1 && word[0] == '[' && word[len(word)-1] == ']' {
		return strings.TrimSpace(word[1 : len(word)-1]), true
	}
	return strings.TrimSpace(word), false
}
