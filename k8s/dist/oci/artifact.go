// SPDX-License-Identifier: Apache-2.0

// Package oci writes a release's images and artifacts into an OCI layout, and pushes them from
// there to a registry.
package oci

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// empty is the configuration of an artifact that needs none (image-spec, "Guidance for an empty
// descriptor").
var empty = Blob{"application/vnd.oci.empty.v1+json", []byte("{}")}

// A Blob is a text and its media type.
type Blob struct {
	Type types.MediaType
	Text []byte
}

// An Artifact is content in a registry that is no container image.
type Artifact struct {
	// Type is the artifact's type. If it is empty, the configuration's media type is.
	Type string
	// Config is the configuration. Without a type, the artifact has an empty one.
	Config Blob
	// Content is the only layer.
	Content Blob
	// Annotations are those of the manifest.
	Annotations map[string]string
	// Subject is the manifest that the artifact is about, or nil.
	Subject *v1.Descriptor
}

// Image returns the artifact in the form in which go-containerregistry writes and pushes images.
func (a Artifact) Image() (v1.Image, error) {
	if a.Config.Type == "" {
		a.Config = empty
	}
	raw := rawArtifact{config: a.Config.Text, layer: static.NewLayer(a.Content.Text, a.Content.Type)}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: a.Type,
		Annotations: a.Annotations, Subject: a.Subject, Layers: make([]v1.Descriptor, 1)}
	for blob, to := range map[*Blob]*v1.Descriptor{&a.Config: &manifest.Config, &a.Content: &manifest.Layers[0]} {
		digest, size, err := v1.SHA256(bytes.NewReader(blob.Text))
		if err != nil {
			return nil, err
		}
		*to = v1.Descriptor{MediaType: blob.Type, Digest: digest, Size: size}
	}
	var err error
	if raw.manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(raw)
}

// rawArtifact has the bytes of an artifact.
type rawArtifact struct {
	config, manifest []byte
	layer            v1.Layer
}

func (r rawArtifact) RawConfigFile() ([]byte, error)      { return r.config, nil }
func (r rawArtifact) RawManifest() ([]byte, error)        { return r.manifest, nil }
func (r rawArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (r rawArtifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	has, err := r.layer.Digest()
	if err == nil && has != digest {
		err = fmt.Errorf("no layer %s", digest)
	}
	return r.layer, err
}
