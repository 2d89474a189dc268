// SPDX-License-Identifier: Apache-2.0

package sbom_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/niclane/niclane/k8s/dist/image"
	"github.com/niclane/niclane/k8s/dist/sbom"
)

// TestOf lists a program of this module: its modules, Go, and the program once for each
// architecture.
func TestOf(t *testing.T) {
	program := filepath.Join(t.TempDir(), "images")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../images").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := sbom.Of("agent", "1.2.3", []image.Config{{Arch: "amd64", Programs: []string{program}},
		{Arch: "arm64", Programs: []string{program}}})
	if err != nil {
		t.Fatal(err)
	}
	bom := cdx.NewBOM()
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range *bom.Components {
		refs = append(refs, c.BOMRef)
	}
	for _, want := range []string{"images/amd64", "images/arm64",
		"pkg:golang/github.com/google/go-containerregistry@v", "pkg:golang/github.com/opencontainers/go-digest@v",
		"pkg:golang/std@1.", "pkg:golang/github.com/niclane/niclane/k8s/dist@1.2.3"} {
		n := 0
		for _, ref := range refs {
			if strings.HasPrefix(ref, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d components %s, want one, in %q", n, want, refs)
		}
	}
	for _, d := range *bom.Dependencies {
		for _, ref := range *d.Dependencies {
			if !slices.Contains(refs, ref) {
				t.Errorf("%s depends on %s, which is no component", d.Ref, ref)
			}
		}
	}
}

// TestNoGoProgram checks the error for a file whose contents nothing tells.
func TestNoGoProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := sbom.Of("agent", "1.2.3", []image.Config{{Arch: "amd64", Programs: []string{file}}})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want an error about %s", err, file)
	}
}
