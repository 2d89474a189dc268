// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/niclane/niclane/k8s/dist/image"
	"github.com/niclane/niclane/k8s/dist/oci"
	"github.com/niclane/niclane/k8s/dist/programs"
	"github.com/niclane/niclane/k8s/dist/sbom"
)

const (
	imageName  = "niclane-agent"
	chartName  = "charts/niclane"
	layoutName = "oci"
	sums       = "SHA256SUMS"
	sbomType   = "application/vnd.cyclonedx+json"

	// nowhere is the registry of a release that stays in its directory.
	nowhere = "localhost"
)

// A release is what one run builds.
type release struct {
	dir, version, registry string
}

// build writes the release into its directory, which must not have files yet.
func (r release) build(arches []string) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	if has, err := os.ReadDir(r.dir); err != nil {
		return err
	} else if len(has) > 0 {
		return fmt.Errorf("%s has files already: want an empty directory", r.dir)
	}
	bin, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	var configs []image.Config
	for _, arch := range arches {
		c, err := programs.Build(filepath.Join(bin, arch), r.version, arch)
		if err != nil {
			return err
		}
		configs = append(configs, c)
	}
	return r.assemble(configs)
}

// assemble writes the release from the images' descriptions.
func (r release) assemble(configs []image.Config) error {
	index, err := image.Index(configs)
	if err != nil {
		return err
	}
	subject, err := partial.Descriptor(index)
	if err != nil {
		return err
	}
	layout, err := oci.Create(filepath.Join(r.dir, layoutName))
	if err != nil {
		return err
	}
	repository := r.registry + "/" + imageName
	if err := layout.Index(index, repository+":"+r.version); err != nil {
		return err
	}
	contents, err := sbom.Of(imageName, r.version, configs)
	if err != nil {
		return fmt.Errorf("SBOM: %w", err)
	}
	if err := r.write(fmt.Sprintf("%s-%s.cdx.json", imageName, r.version), contents); err != nil {
		return err
	}
	if err := layout.Referrer(oci.Artifact{Type: sbomType, Content: oci.Blob{Type: sbomType, Text: contents},
		Subject: subject}, repository); err != nil {
		return err
	}
	pinned := repository + "@" + subject.Digest.String()
	if err := r.chart(layout, pinned); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.manifests(pinned); err != nil {
		return err
	}
	return r.checksums()
}

// chart adds the chart to the layout, and writes it as Helm's archive too.
func (r release) chart(layout oci.Layout, pinned string) error {
	archive, metadata, err := packChart("chart/niclane", r.version, pinned)
	if err != nil {
		return err
	}
	config, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	if err := layout.Artifact(oci.Artifact{
		// the media types of Helm: helm.sh/docs/topics/registries
		Config:  oci.Blob{Type: "application/vnd.cncf.helm.config.v1+json", Text: config},
		Content: oci.Blob{Type: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Text: archive},
		Annotations: map[string]string{"org.opencontainers.image.title": metadata.Name,
			"org.opencontainers.image.version":     metadata.Version,
			"org.opencontainers.image.description": metadata.Description},
	}, r.registry+"/"+chartName+":"+r.version); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s-%s.tgz", metadata.Name, r.version), archive)
}

// manifests writes the plain manifests, which the tests of this module make from the chart.
func (r release) manifests(pinned string) error {
	paths, err := filepath.Glob("manifests/*.yaml")
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out, err := replace(path, string(text), programs.Local, pinned)
		if err != nil {
			return err
		}
		if err := r.write(filepath.Base(path), []byte(out)); err != nil {
			return err
		}
	}
	return nil
}

// replace replaces a text that a file must have.
func replace(path, in, old, with string) (string, error) {
	if !strings.Contains(in, old) {
		return "", fmt.Errorf("%s: want %q in it, which a release replaces", path, old)
	}
	return strings.ReplaceAll(in, old, with), nil
}

// checksums writes the SHA-256 of each file, in the form of sha256sum. The blobs of the layout are
// named by their own.
func (r release) checksums() error {
	var out strings.Builder
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "blobs" {
				return fs.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.dir, path)
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(text), name)
		return err
	})
	if err != nil {
		return err
	}
	return r.write(sums, []byte(out.String()))
}

func (r release) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(r.dir, name), text, 0o644)
}
