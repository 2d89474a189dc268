// SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	if err := makeCertificate(dir, []string{"10.77.0.1", "10.78.0.1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(dir, bundleFile)
	for _, files := range [][2]string{{certificateFile, keyFile}, {bundleFile, bundleFile}} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, files[0]), filepath.Join(dir, files[1]))
		if err != nil {
			t.Fatal(err)
		}
		pem, err := os.ReadFile(filepath.Join(dir, certificateFile))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		for name, want := range map[string]bool{"10.77.0.1": true, "10.78.0.1": true, "10.77.0.2": false} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); (err == nil) != want {
				t.Errorf("%s: %v", name, err)
			}
		}
		late := x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(2 * time.Hour)}
		if _, err := pair.Leaf.Verify(late); err == nil {
			t.Error("valid for longer than the run")
		}
	}
	if st, err := os.Stat(bundle); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want 0600", st.Mode(), err)
	}
	if err := makeCertificate(dir, []string{"host"}, time.Hour); err == nil {
		t.Error("a name is no address, and no error")
	}
}
