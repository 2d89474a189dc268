// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/niclane/niclane/k8s/dist/image"
)

func program(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWrite writes an image, and reads it back with a library that checks every digest.
func TestWrite(t *testing.T) {
	var archive bytes.Buffer
	config := image.Config{Name: "registry.example/agent:1", Arch: "arm64", Programs: []string{program(t)},
		Entrypoint: "/agent",
		Files:      map[string]string{"/lib/arch/libc.so.6": program(t)}}
	if err := image.Write(&archive, config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack(t, &archive, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	entry := manifest.Manifests[0]
	if got := entry.Annotations["io.containerd.image.name"]; got != config.Name {
		t.Errorf("name %q, want %q", got, config.Name)
	}
	img, err := index.Image(entry.Digest)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Architecture != "arm64" || file.OS != "linux" || len(file.Config.Entrypoint) != 1 ||
		file.Config.Entrypoint[0] != "/agent" {
		t.Errorf("config %+v", file)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	text, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	each(t, text, func(h *tar.Header, content string) {
		files[h.Name] = content
		if h.Name == "agent" && h.Mode != 0o755 {
			t.Errorf("the program's mode is %o", h.Mode)
		}
	})
	if files["agent"] != "a program" || files["lib/arch/libc.so.6"] != "a program" {
		t.Errorf("files %v", files)
	}
}

// TestReproducible checks that writing an image twice gives the same bytes.
func TestReproducible(t *testing.T) {
	config := image.Config{Name: "a:1", Arch: "amd64", Programs: []string{program(t)}, Entrypoint: "/agent"}
	var one, other bytes.Buffer
	for _, w := range []io.Writer{&one, &other} {
		if err := image.Write(w, config); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), other.Bytes()) {
		t.Error("two images of the same files differ")
	}
}

// TestMissing checks the error for a missing program.
func TestMissing(t *testing.T) {
	err := image.Write(io.Discard, image.Config{Name: "a:1", Programs: []string{"/nowhere/agent"}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

func unpack(t *testing.T, archive io.Reader, dir string) {
	each(t, archive, func(h *tar.Header, content string) {
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}

func each(t *testing.T, archive io.Reader, f func(*tar.Header, string)) {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		f(h, string(content))
	}
}
