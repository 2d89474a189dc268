// SPDX-License-Identifier: Apache-2.0

package niclane

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Limits for the documents' prose, in words, so that a reader understands each sentence at the
// first reading.
const (
	meanSentence    = 20
	longestSentence = 45
	longestCell     = 30
)

// TestProse holds the documents to short sentences.
func TestProse(t *testing.T) {
	docs := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, more...)
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range prose(string(text)) {
			t.Errorf("%s: %s", doc, why)
		}
	}
}

var (
	sentenceEnd = regexp.MustCompile(`[.?!:]["')*]*(\s+|$)`)
	listMark    = regexp.MustCompile(`^\s*([-*]|[0-9]+\.|:)\s+`)
	link        = regexp.MustCompile(`\]\([^)]*\)`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
)

// prose names what is too long in a document.
func prose(text string) (bad []string) {
	var paragraphs []string
	paragraph := ""
	end := func() {
		if strings.TrimSpace(paragraph) != "" {
			paragraphs = append(paragraphs, paragraph)
		}
		paragraph = ""
	}
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
			end()
		case code, strings.HasPrefix(line, "    ") && paragraph == "", strings.HasPrefix(trimmed, "#"), trimmed == "":
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(strings.Trim(trimmed, "|"), "|") {
				if n := words(cell); n > longestCell {
					bad = append(bad, "cell of "+count(n)+cell)
				}
			}
		default:
			if listMark.MatchString(line) {
				end()
			}
			paragraph += listMark.ReplaceAllString(line, "") + " "
		}
	}
	end()
	total, sentences := 0, 0
	for _, p := range paragraphs {
		for _, s := range sentenceEnd.Split(p, -1) {
			n := words(s)
			if n == 0 {
				continue
			}
			total, sentences = total+n, sentences+1
			if n > longestSentence {
				bad = append(bad, "sentence of "+count(n)+s)
			}
		}
	}
	if sentences > 0 && total > meanSentence*sentences {
		bad = append(bad, "sentences of "+count(total/sentences)+"on average")
	}
	return bad
}

// words counts the words of a text. Each piece of inline code counts as one word.
func words(s string) int {
	s = link.ReplaceAllString(s, "]")
	return len(strings.Fields(inlineCode.ReplaceAllString(s, "code")))
}

func count(n int) string { return fmt.Sprintf("%d words: ", n) }
