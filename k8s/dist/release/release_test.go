// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// TestMain runs the tests in the directory in which people run the command: the module's.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestRelease builds a release twice, and compares the files. It pushes one of them to a registry
// of its own, and reads it back as its users do.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it links all programs four times")
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://") + "/team"
	dir, again := t.TempDir(), t.TempDir()
	arches := []string{"amd64", "arm64"}
	for _, dir := range []string{dir, again} {
		if err := build(dir, "v1.2.3", at, arches); err != nil {
			t.Fatal(err)
		}
	}
	if err := push(dir); err != nil {
		t.Fatal(err)
	}
	files := read(t, dir)
	if diff := cmp.Diff(files, read(t, again)); diff != "" {
		t.Errorf("two builds differ:\n%s", diff)
	}
	for name, sum := range files {
		if line := sum + "  " + name + "\n"; name != sums && !strings.HasPrefix(name, "oci/blobs/") &&
			!strings.Contains(text(t, dir, sums), line) {
			t.Errorf("%s has no line %q", sums, line)
		}
	}
	tag, err := name.NewTag(at + "/niclane-agent:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	pinned := tag.Context().Digest(digest.String())
	checkIndex(t, index, arches)
	checkSBOM(t, pinned, text(t, dir, "niclane-agent-1.2.3.cdx.json"))
	checkChart(t, at, pinned.String(), text(t, dir, "niclane-1.2.3.tgz"))
	for _, name := range []string{"niclane.yaml", "niclane-nri.yaml"} {
		manifest := text(t, dir, name)
		if strings.Contains(manifest, "localhost/") || !strings.Contains(manifest, "image: "+pinned.String()+"\n") {
			t.Errorf("%s does not pin the image", name)
		}
	}
	if err := build(dir, "v1.2.3", at, arches); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("into a directory with files: %v", err)
	}
}

// read returns the SHA-256 of each file below a directory.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir+"/")] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func text(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func checkIndex(t *testing.T, index v1.ImageIndex, arches []string) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range manifest.Manifests {
		got = append(got, d.Platform.Architecture)
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != d.Platform.Architecture ||
			config.Config.Labels["org.opencontainers.image.version"] != "1.2.3" {
			t.Errorf("image for %s: %+v", d.Platform, config)
		}
	}
	if diff := cmp.Diff(arches, got); diff != "" {
		t.Errorf("architectures (-want +got):\n%s", diff)
	}
}

// checkSBOM checks that the registry lists the SBOM as a referrer of the image, and nothing else.
func checkSBOM(t *testing.T, image name.Digest, want string) {
	t.Helper()
	referrers, err := remote.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("referrers %+v, want the SBOM alone", manifest.Manifests)
	}
	if got := layer(t, image.Context().Digest(manifest.Manifests[0].Digest.String())); got != want {
		t.Errorf("the registry's SBOM is not the file's:\n%s", got)
	}
}

func checkChart(t *testing.T, at, image, want string) {
	t.Helper()
	ref, err := name.NewTag(at + "/charts/niclane:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	archive := layer(t, ref)
	if archive != want {
		t.Error("the registry's chart is not the file's")
	}
	c, err := loader.LoadArchive(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "1.2.3" {
		t.Errorf("versions %s and %s, want 1.2.3", c.Metadata.Version, c.Metadata.AppVersion)
	}
	if got := c.Values["image"].(map[string]any)["name"]; got != image {
		t.Errorf("the chart's image is %v, want %s", got, image)
	}
}

// layer returns the only layer of an artifact in a registry.
func layer(t *testing.T, ref name.Reference) string {
	t.Helper()
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	if _, err := io.Copy(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestSemantic checks the versions of commits with a tag, after a tag, and without one.
func TestSemantic(t *testing.T) {
	for describe, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-5-g68dc9547": "1.2.4-0.5.g68dc9547",
		"68dc9547": "0.0.0-g68dc9547", "01234567-dirty": "0.0.0-g01234567.dirty", "v1.2.3-dirty": "1.2.3-dirty",
		"": "", "unknown": "", "v1.2": "", "v1.2.3+5": "",
	} {
		got, err := semantic(describe)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", describe, got, err, want)
		}
	}
}
