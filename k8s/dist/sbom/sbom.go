// SPDX-License-Identifier: Apache-2.0

// Package sbom lists what is in the programs of a container image, as a CycloneDX document. The
// source is what the Go linker has written into each program (debug/buildinfo). The package does
// not look at other files.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"

	"github.com/niclane/niclane/k8s/dist/image"
)

// own is the path of niclane's module, and the beginning of those of its other modules.
const own = "github.com/niclane/niclane"

// Of returns the JSON document of an image: a component for each program and architecture, for each
// Go module and for Go's standard library. name and version are the image's. The same programs give
// the same document. It is an error if a program has not been built by Go.
func Of(name, version string, configs []image.Config) ([]byte, error) {
	image := cdx.Component{BOMRef: name, Type: cdx.ComponentTypeContainer, Name: name, Version: version}
	has := cdx.Dependency{Ref: image.BOMRef, Dependencies: &[]string{}}
	modules := map[string]cdx.Component{}
	var programs []cdx.Component
	var uses []cdx.Dependency
	for _, c := range configs {
		for _, file := range c.Programs {
			program, parts, err := read(file, c.Arch, version)
			if err != nil {
				return nil, err
			}
			programs = append(programs, program)
			*has.Dependencies = append(*has.Dependencies, program.BOMRef)
			refs := []string{}
			for _, m := range parts {
				modules[m.BOMRef] = m
				refs = append(refs, m.BOMRef)
			}
			slices.Sort(refs)
			uses = append(uses, cdx.Dependency{Ref: program.BOMRef, Dependencies: &refs})
		}
	}
	all := programs
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		all = append(all, modules[ref])
	}
	uses = append([]cdx.Dependency{has}, uses...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &image}
	bom.Components, bom.Dependencies = &all, &uses
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// read returns the components of a program and of the modules in it.
func read(file, arch, version string) (program cdx.Component, modules []cdx.Component, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return program, nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(text))
	if err != nil {
		return program, nil, fmt.Errorf("%s: %w", file, err)
	}
	name := filepath.Base(file)
	program = cdx.Component{
		BOMRef: name + "/" + arch, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		Description: info.Path + " for linux/" + arch,
		Hashes:      &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(text))}},
	}
	modules = append(modules, module("std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		at := m
		if m.Replace != nil {
			at = m.Replace
		}
		if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
			modules = append(modules, module(m.Path, version))
		} else {
			modules = append(modules, module(at.Path, at.Version))
		}
	}
	return program, modules, nil
}

func module(name, version string) cdx.Component {
	namespace, base := path.Split(name)
	url := packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(namespace, "/"), base, version, nil,
		"").ToString()
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url}
}
