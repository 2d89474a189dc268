// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

// TestDefaultFile: all settings in the packaged lanes file are comments. Without the comment signs,
// the file is valid.
func TestDefaultFile(t *testing.T) {
	text, err := os.ReadFile("lanes.yaml")
	must.Do(t, err)
	if _, err := config.ParseFile("lanes.yaml", text); err == nil {
		t.Error("as it is, the file asks for something")
	}
	var example strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "##") {
			example.WriteString(strings.TrimPrefix(line, "#"))
		}
	}
	f, err := config.ParseFile("lanes.yaml", []byte(example.String()))
	if err != nil {
		t.Fatalf("without its comment signs:\n%v", err)
	}
	if len(f.Intent.Lanes) == 0 {
		t.Error("the example has no lane")
	}
}

// TestEveryManualPage: every manual page in docs is in a package. dist/build puts the pages of a
// program's commands into one folder, and the program's package takes the whole folder.
func TestEveryManualPage(t *testing.T) {
	packaged := map[string]string{}
	for _, name := range []string{"niclane", "niclane-bench"} {
		text, err := os.ReadFile(name + ".yaml")
		must.Do(t, err)
		packaged[name] = string(text)
		commands := "src: ${STAGE}/man/" + name + "/*.8.gz\n    dst: /usr/share/man/man8\n"
		if !strings.Contains(packaged[name], commands) {
			t.Errorf("%s.yaml has no %q", name, commands)
		}
	}
	pages, err := filepath.Glob("../docs/*.[1-8].md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no manual pages in docs", err)
	}
	for _, p := range pages {
		page := strings.TrimSuffix(filepath.Base(p), ".md")
		want := "dst: /usr/share/man/man" + page[len(page)-1:] + "/" + page + ".gz\n"
		if !strings.Contains(packaged["niclane"]+packaged["niclane-bench"], want) {
			t.Errorf("no package has %q", want)
		}
	}
}

// TestUnit checks the unit with systemd. /bin/true stands for niclane, which may not be installed.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	text, err := os.ReadFile("niclane@.service")
	must.Do(t, err)
	dir := t.TempDir()
	there := strings.ReplaceAll(string(text), "/usr/bin/niclane", "/bin/true")
	must.Do(t, os.WriteFile(filepath.Join(dir, "niclane@.service"), []byte(there), 0o644))
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, "niclane@lanes.service"))
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "niclane@") {
			t.Error(strings.TrimSpace(line))
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDocumentsPackaged: the package niclane contains every folder of documents except man. The
// manual pages have folders of their own in the packages.
func TestDocumentsPackaged(t *testing.T) {
	text, err := os.ReadFile("niclane.yaml")
	must.Do(t, err)
	folders, err := filepath.Glob("../docs/*/")
	must.Do(t, err)
	for _, folder := range folders {
		name := filepath.Base(folder)
		want := "src: docs/" + name + "/*.md\n    dst: /usr/share/doc/niclane/" + name + "\n"
		if name != "man" && !strings.Contains(string(text), want) {
			t.Errorf("niclane.yaml has no %q", want)
		}
	}
}
