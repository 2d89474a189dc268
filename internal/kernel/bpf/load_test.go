// SPDX-License-Identifier: Apache-2.0

package bpf

import "testing"

func TestLoad(t *testing.T) {
	if err := Load(); err != nil {
		t.Fatalf("%+v", err)
	}
}
