// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// killed NAMESPACE WORD kills, as soon as there is one, a process in a network
// namespace whose command line has the word. The namespace is a test's own.
func killIn(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: killed NAMESPACE WORD")
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var host unix.Stat_t
		if unix.Stat(filepath.Join("/run/netns", args[0]), &host) != nil {
			continue // not yet
		}
		processes, err := filepath.Glob("/proc/[0-9]*")
		ts.Check(err)
		for _, p := range processes {
			var its unix.Stat_t
			line, err := os.ReadFile(filepath.Join(p, "cmdline"))
			if err != nil || unix.Stat(filepath.Join(p, "ns/net"), &its) != nil || its.Ino != host.Ino {
				continue
			}
			for arg := range bytes.SplitSeq(line, []byte{0}) {
				if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && string(arg) == args[1] && unix.Kill(pid, unix.SIGKILL) == nil {
					return
				}
			}
		}
	}
	ts.Fatalf("no process %s in %s", args[1], args[0])
}

// certificate NAME makes NAME.pem and NAME.key, which vouches for itself.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificate NAME")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: args[0]}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, DNSNames: []string{args[0]},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	ts.Check(os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
