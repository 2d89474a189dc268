// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/strictyaml"
)

// reasons are the only reasons for which a row may stay unfulfilled, with what they stand for.
var reasons = map[string]string{
	"hardware":           "needs a card or a machine that is not here",
	"driver":             "is in Intel's own driver",
	"varnish-enterprise": "is in Varnish Enterprise",
	"qat":                "needs an accelerator such as Intel QAT",
	"asd":                "needs Aerospike's server",
}

// auditRows are the numbers of rows of the papers: 000 (Traffic Server), 001 (memcached), 002
// (Kubernetes), 003 (Varnish) and 004 (Aerospike).
var auditRows = []int{68, 36, 48, 32, 26}

// An auditRow is a row of audit.yaml, whose head describes the keys.
type auditRow struct {
	id, says string
	at       []string
	not      string
	because  string
	note     string
}

func auditKeys() []strictyaml.Key[auditRow] {
	sentence := strictyaml.Pattern("a sentence of 20 to 300 characters that ends with a full stop", `^.{19,299}\.$`, nil)
	place := strictyaml.Pattern("a file and a text that is in it: lane/plan/host.go wantCpusets", `^\S+ \S(.*\S)?$`, nil)
	return []strictyaml.Key[auditRow]{
		strictyaml.Of("id", strictyaml.Pattern(`a paper and a row, in quotes: "000.12"`, `^00[0-4]\.[1-9][0-9]?$`, nil),
			"required", "", func(r *auditRow, x string) { r.id = x }),
		strictyaml.Of("says", strictyaml.Text("the paper's words", 160), "required", "",
			func(r *auditRow, x string) { r.says = x }),
		strictyaml.Of("at", strictyaml.Texts("a list of places", 6, place), "none", "",
			func(r *auditRow, x []string) { r.at = x }),
		strictyaml.Of("not", strictyaml.Word(slices.Sorted(maps.Keys(reasons))...), "none", "",
			func(r *auditRow, x string) { r.not = x }),
		strictyaml.Of("because", sentence, "none", "", func(r *auditRow, x string) { r.because = x }),
		strictyaml.Of("note", sentence, "none", "", func(r *auditRow, x string) { r.note = x }),
	}
}

// readAudit reads the text of audit.yaml and checks its rows. read returns the text of a file of the
// repository. errs has every problem with its line.
func readAudit(text []byte, read func(path string) (string, error)) (rows []auditRow, errs error) {
	const want = "a list of rows"
	r := strictyaml.NewReader("audit.yaml")
	if root, ok := r.Document(text, want); ok {
		rows, _ = strictyaml.Sections("row", want, 1000, auditKeys,
			func(strictyaml.Value) auditRow { return auditRow{} }).Read(root)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return rows, errs
	}
	for i, row := range rows {
		fail := func(key, format string, args ...any) {
			r.Failf(strictyaml.Join(strictyaml.Index("", i), key), row.id+": "+format, args...)
		}
		switch {
		case row.says == "":
			fail("id", "says is missing, want the paper's words")
		case row.not == "" && row.because != "":
			fail("because", "found without not, want note for a fulfilled row")
		case row.not != "" && row.because == "":
			fail("not", "because is missing, want a sentence")
		}
		if row.not == "" && !slices.ContainsFunc(row.at, isTest) {
			fail("id", "at names no test, want a file _test.go or .txtar among the places")
		}
		at := strictyaml.Join(strictyaml.Index("", i), "at")
		for k, place := range row.at {
			file, what, _ := strings.Cut(place, " ")
			if why := missing(file, what, read); why != "" {
				r.Failf(strictyaml.Index(at, k), "%s: %s", row.id, why)
			}
			if slices.Contains(row.at[:k], place) {
				r.Failf(strictyaml.Index(at, k), "%s: given a second time", row.id)
			}
		}
	}
	if errs := r.Errors(); len(errs) > 0 {
		return rows, errs
	}
	return rows, nil
}

// isTest reports whether a place is in a test or in the script of one.
func isTest(place string) bool {
	file, _, _ := strings.Cut(place, " ")
	return strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".txtar")
}

// commentLine matches a line that is a comment, by the file's extension. What a comment names need
// not exist.
var commentLine = map[string]*regexp.Regexp{
	".go":   regexp.MustCompile(`(?m)^\s*//.*$`),
	".yaml": regexp.MustCompile(`(?m)^\s*#.*$`),
}

// missing returns why a text is not in a file; "" if it is. The text must not be a part of a longer
// word, and must not be in a comment. The name of a test must be that of a function.
func missing(file, what string, read func(path string) (string, error)) string {
	if !filepath.IsLocal(file) || filepath.Clean(file) != file {
		return fmt.Sprintf("found the file %s, want a path below the top of the repository", file)
	}
	text, err := read(file)
	if err != nil {
		return err.Error()
	}
	if c := commentLine[filepath.Ext(file)]; c != nil {
		text = c.ReplaceAllString(text, "")
	}
	expr := strings.ReplaceAll(regexp.QuoteMeta(what), " ", `\s+`) // a text may go over two lines
	if strings.HasPrefix(what, "Test") && strings.HasSuffix(file, "_test.go") {
		expr = `func ` + expr + `\(t`
	}
	const letter = `[0-9A-Za-z_]`
	if regexp.MustCompile(`^` + letter).MatchString(expr) {
		expr = `\b` + expr
	}
	if regexp.MustCompile(letter + `$`).MatchString(expr) {
		expr += `\b`
	}
	if !regexp.MustCompile(expr).MatchString(text) {
		return fmt.Sprintf("%s has no %q outside of comments", file, what)
	}
	return ""
}

// TestAudit holds the repository to audit.yaml: all rows of the papers are there, in their order, and
// what each row names exists.
func TestAudit(t *testing.T) {
	text, err := os.ReadFile("audit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readAudit(text, func(path string) (string, error) {
		b, err := os.ReadFile(filepath.Join("..", path))
		return string(b), err
	})
	if err != nil {
		t.Error(err)
	}
	var got, want []string
	for paper, n := range auditRows {
		for i := range n {
			want = append(want, fmt.Sprintf("%03d.%d", paper, i+1))
		}
	}
	count := map[string]int{}
	for _, row := range rows {
		got = append(got, row.id)
		count[row.not]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	t.Logf("of %d rows, %d are fulfilled", len(rows), count[""])
	for _, not := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("not fulfilled, %s: %d", not, count[not])
	}
}

// TestAuditRefuses checks that a row that says too little, or names something that does not exist, is
// an error.
func TestAuditRefuses(t *testing.T) {
	files := map[string]string{
		"lane/a.go":      "// wanted is only named here.\nfunc made() {}\n",
		"lane/a_test.go": "func TestMade(t *testing.T) {}\n",
		"lanes.yaml":     "# numa: all\nqueues: 26\n",
		"a.md":           "The minimum\nkernel is 6.1.\n",
	}
	const head = "- id: \"000.1\"\n  says: dedicates queues\n"
	for row, want := range map[string]string{
		"  at: [lane/a.go made, lane/a_test.go TestMade, 'lanes.yaml queues: 26']\n": "",
		"  at: [lane/a_test.go TestMade, a.md minimum kernel]\n":                     "",
		"  not: qat\n  because: The encryption is done by another card.\n":           "",
		"": "1: [0].id: 000.1: at names no test, want a file _test.go or .txtar among the places",
		"  at: [lane/a.go made]\n": "1: [0].id: 000.1: at names no test, want a file _test.go or .txtar among the " +
			"places",
		"  at: [lane/a_test.go TestMade, lane/b.go made]\n": "3: [0].at[1]: 000.1: lane/b.go: no such file",
		"  at: [lane/a_test.go TestMade, ../lane/a.go made]\n": "3: [0].at[1]: 000.1: found the file ../lane/a.go, want " +
			"a path below the top of the repository",
		"  at: [lane/a_test.go TestMade, lane/a.go wanted]\n": `3: [0].at[1]: 000.1: lane/a.go has no "wanted" outside ` +
			`of comments`,
		"  at: [lane/a_test.go TestMade, lane/a.go mad]\n": `3: [0].at[1]: 000.1: lane/a.go has no "mad" outside of ` +
			`comments`,
		"  at: [lane/a_test.go Test]\n": `3: [0].at[0]: 000.1: lane/a_test.go has no "Test" outside of comments`,
		"  at: [lane/a_test.go TestMade, 'lanes.yaml numa: all']\n": `3: [0].at[1]: 000.1: lanes.yaml has no ` +
			`"numa: all" outside of comments`,
		"  at: [lane/a.go]\n": `3: [0].at[0]: found "lane/a.go", want a file and a text that is in it: ` +
			`lane/plan/host.go wantCpusets`,
		"  at: [lane/a_test.go TestMade, lane/a_test.go TestMade]\n": "3: [0].at[1]: 000.1: given a second time",
		"  not: qat\n": "3: [0].not: 000.1: because is missing, want a sentence",
		"  not: later\n  because: It takes too long to do.\n": "3: [0].not: found \"later\", want asd, driver, " +
			"hardware, qat or varnish-enterprise",
		"  at: [lane/a_test.go TestMade]\n  because: It takes too long to do.\n": "4: [0].because: 000.1: found without " +
			"not, want note for a fulfilled row",
	} {
		_, err := readAudit([]byte(head+row), func(path string) (string, error) {
			text, ok := files[path]
			if !ok {
				return "", fmt.Errorf("%s: no such file", path)
			}
			return text, nil
		})
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "audit.yaml:")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s(-want +got):\n%s", row, diff)
		}
	}
}
