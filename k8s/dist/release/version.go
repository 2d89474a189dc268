// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/Masterminds/semver/v3"
)

var (
	afterTag = regexp.MustCompile(`^v(\d+\.\d+\.\d+)-(\d+)-g([0-9a-f]+)$`)
	noTag    = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// semantic returns the version of a release from what git describe prints: 1.2.3 for v1.2.3. Other
// commits get a version before the next release, as Go's pseudo-versions: 1.2.4-0.5.gHASH for the
// fifth commit after v1.2.3, and 0.0.0-gHASH if there is no tag.
func semantic(describe string) (string, error) {
	commit, dirty := strings.CutSuffix(describe, "-dirty")
	text := strings.TrimPrefix(commit, "v")
	if m := afterTag.FindStringSubmatch(commit); m != nil {
		next := semver.MustParse(m[1]).IncPatch()
		text = fmt.Sprintf("%s-0.%s.g%s", next.String(), m[2], m[3])
	} else if noTag.MatchString(commit) {
		text = "0.0.0-g" + commit
	}
	if dirty && strings.Contains(text, "-") {
		text += ".dirty"
	} else if dirty {
		text += "-dirty"
	}
	// A registry's tag cannot have the plus sign of a semantic version.
	if v, err := semver.StrictNewVersion(text); err != nil || v.Metadata() != "" {
		return "", fmt.Errorf("%q is no version: want v1.2.3, or what git describe prints", describe)
	}
	return text, nil
}
