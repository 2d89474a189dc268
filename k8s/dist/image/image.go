// SPDX-License-Identifier: Apache-2.0

// Package image makes container images from programs, without a container engine and without a base
// image. An image has one layer and one manifest. The same files give the same image, byte by byte.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Config describes an image.
type Config struct {
	// Name is the name under which the image is imported: registry/repository:tag.
	Name string
	// Arch is the programs' GOARCH.
	Arch string
	// Programs are paths of programs on the host. In the image, each has the same name in /.
	Programs []string
	// Files maps paths in the image to further files of the host, for example shared libraries.
	Files map[string]string
	// Entrypoint is the path in the image of the program that a container starts.
	Entrypoint string
	// Labels are the image's labels. Their keys are those of the OCI image specification's
	// annotations.
	Labels map[string]string
}

// Write writes an image to w as the archive of an OCI layout. ctr image import, nerdctl load and
// skopeo can read it.
func Write(w io.Writer, c Config) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeLayout(dir, c); err != nil {
		return fmt.Errorf("image %s: %w", c.Name, err)
	}
	return archive(w, dir)
}

func writeLayout(dir string, c Config) error {
	img, err := New(c)
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(img,
		layout.WithPlatform(c.platform()),
		layout.WithAnnotations(map[string]string{
			"io.containerd.image.name":          c.Name, // the name under which containerd imports it
			"org.opencontainers.image.ref.name": c.Name,
		}))
}

func (c Config) platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: c.Arch} }

// New returns an image without a name.
func New(c Config) (v1.Image, error) {
	layer, err := layerOf(c)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", c.Arch
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{Entrypoint: []string{c.Entrypoint}, Env: []string{"PATH=/"}, WorkingDir: "/",
		Labels: c.Labels}
	return mutate.ConfigFile(img, config)
}

// Index returns an image for several architectures: an index with an image for each Config.
func Index(configs []Config) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, c := range configs {
		img, err := New(c)
		if err != nil {
			return nil, err
		}
		platform := c.platform()
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
}

// layerOf returns a layer with the programs, the files, and the directories /etc and /tmp.
func layerOf(c Config) (v1.Layer, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"tmp/", 0o1777}} {
		if err := w.WriteHeader(&tar.Header{Name: dir.name, Typeflag: tar.TypeDir, Mode: dir.mode}); err != nil {
			return nil, err
		}
	}
	add := func(name, path string) error {
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(program))}); err != nil {
			return err
		}
		_, err = w.Write(program)
		return err
	}
	for _, path := range c.Programs {
		if err := add(filepath.Base(path), path); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := add(strings.TrimPrefix(name, "/"), c.Files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// archive writes a tar archive of the files below dir, in the order of their names. It leaves out
// times and owners, which differ between machines.
func archive(to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
