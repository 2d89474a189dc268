// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/niclane/niclane/k8s/dist/programs"
)

// unreleased is the version of the chart in the checkout.
const unreleased = "0.0.0-dev"

// packChart returns the archive of the chart in dir, with a version and the name of an image in its
// values, and the chart's metadata. helm package would write the present time into the archive.
func packChart(dir, version, image string) ([]byte, *chart.Metadata, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(filepath.Dir(dir), path)
		if err != nil {
			return err
		}
		body := string(text)
		switch name {
		case "niclane/Chart.yaml":
			body, err = replace(path, body, unreleased, version)
		case "niclane/values.yaml":
			body, err = replace(path, body, programs.Local, image)
		}
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(body)),
			ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err = w.Write([]byte(body))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := w.Close(); err != nil {
		return nil, nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, nil, err
	}
	c, err := loader.LoadArchive(bytes.NewReader(out.Bytes()))
	if err != nil {
		return nil, nil, err
	}
	return out.Bytes(), c.Metadata, c.Validate()
}
