// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/niclane/niclane/cmd/internal/clitest"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// TestScripts and TestLab need both programs, niclane and niclane-bench, as make builds them,
// because each of them starts the other.
func TestScripts(t *testing.T) {
	clitest.Scripts(t, programs.Readable(t, program.Niclane, program.Bench), nil)
}

func TestLab(t *testing.T) {
	clitest.Lab(t, programs.Readable(t, program.Niclane, program.Bench), nil,
		map[string]func(*testscript.TestScript, bool, []string){"certificate": certificate, "samegain": samegain})
}

func TestExamples(t *testing.T) { clitest.Examples(t, (&app{}).command(), examples) }

// TestManual: in the pages of niclane-bench and of its commands, the generated parts are what make
// generate writes.
func TestManual(t *testing.T) {
	m := clitest.Manual{
		Program: program.Bench, Root: (&app{}).command(), Limit: 400,
		Typed: func(name string) string {
			if slices.Contains([]string{"simulate", "trial", "report", "refresh", "selftest"}, name) { // niclane has commands of these names
				return "niclane " + name
			}
			return "niclane bench " + name
		},
		Page: func(name string) string {
			if name == "version" {
				return ""
			}
			return "man/niclane-bench-" + name + ".8.md"
		},
	}
	m.Test(t)
}

// certificate NAME makes a self-signed certificate in NAME.pem and its key in NAME.key.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificate NAME")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: args[0]}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{args[0]},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	ts.Check(os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
