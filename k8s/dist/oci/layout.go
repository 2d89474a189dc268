// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	noimages "github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// refName is the annotation by which an OCI layout names what is in it.
const refName = "org.opencontainers.image.ref.name"

// repository is the annotation with the repository of an entry without a tag: that of its subject.
const repository = "dev.niclane.repository"

// A Layout is an OCI layout in a directory.
type Layout struct{ path layout.Path }

// Create makes an empty layout in a directory.
func Create(dir string) (Layout, error) {
	path, err := layout.Write(dir, noimages.Index)
	return Layout{path}, err
}

// Index adds an image index. ref is the name under which Push pushes it: REGISTRY/REPOSITORY:TAG.
func (l Layout) Index(index v1.ImageIndex, ref string) error {
	return l.path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: ref}))
}

// Artifact adds an artifact. ref is the name under which Push pushes it: REGISTRY/REPOSITORY:TAG.
func (l Layout) Artifact(a Artifact, ref string) error {
	img, err := a.Image()
	if err != nil {
		return err
	}
	return l.path.AppendImage(img, layout.WithAnnotations(map[string]string{refName: ref}))
}

// Referrer adds an artifact that has no tag, because registries list it with its subject. repo is
// the subject's, REGISTRY/REPOSITORY.
func (l Layout) Referrer(a Artifact, repo string) error {
	img, err := a.Image()
	if err != nil {
		return err
	}
	return l.path.AppendImage(img, layout.WithAnnotations(map[string]string{repository: repo}))
}

// Push pushes what the layout in a directory has, under its names, and calls told with the digest
// and the tag of each image and artifact. Credentials are those of docker login and podman login.
func Push(dir string, told func(ref string)) error {
	path, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	index, err := path.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		ref, err := reference(d)
		if err != nil {
			return err
		}
		if err := push(index, d, ref); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
		pushed := ref.Context().Digest(d.Digest.String()).String()
		if tag, ok := ref.(name.Tag); ok {
			pushed += " " + tag.TagStr()
		}
		told(pushed)
	}
	return nil
}

func reference(d v1.Descriptor) (name.Reference, error) {
	if ref := d.Annotations[refName]; ref != "" {
		return name.NewTag(ref, name.StrictValidation)
	}
	return name.NewDigest(d.Annotations[repository]+"@"+d.Digest.String(), name.StrictValidation)
}

func push(from v1.ImageIndex, d v1.Descriptor, ref name.Reference) error {
	option := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if d.MediaType.IsIndex() {
		index, err := from.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, index, option)
	}
	img, err := from.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, img, option)
}
