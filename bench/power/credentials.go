// SPDX-License-Identifier: Apache-2.0

package power

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names in a credentials file. In the environment the names are PREFIX_USER, PREFIX_PASSWORD,
// PREFIX_COMMUNITY and PREFIX_PRIVACYPASSWORD.
const (
	user            = "user"
	password        = "password"        // password for IPMI, Redfish and SNMPv3's authentication
	privacyPassword = "privacyPassword" // for SNMPv3's encryption; if absent, password is used
	community       = "community"       // for SNMPv2c
)

var credentialNames = []string{user, password, privacyPassword, community}

var envPrefix = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}$`)

// maxCredentials is the largest size of a credentials file, in bytes.
const maxCredentials = 4096

// secrets are credentials by name. All functions of package fmt print them as "[secret]".
type secrets map[string]string

func (secrets) String() string               { return "[secret]" }
func (secrets) GoString() string             { return "[secret]" }
func (secrets) Format(f fmt.State, _ rune)   { io.WriteString(f, "[secret]") }
func (secrets) MarshalJSON() ([]byte, error) { return []byte(`"[secret]"`), nil }

// readSecrets reads secrets from where, a path or "env:PREFIX". Each name in want must be there;
// names in optional may be there; any other name is an error.
func readSecrets(where string, want, optional []string) (secrets, error) {
	var s secrets
	if prefix, env := strings.CutPrefix(where, "env:"); env {
		s = secrets{}
		for _, name := range credentialNames {
			if v, ok := os.LookupEnv(prefix + "_" + strings.ToUpper(name)); ok {
				s[name] = v
			}
		}
	} else {
		b, err := readPrivate(where)
		if err != nil {
			return nil, err
		}
		if s, err = parseSecrets(b); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	var errs []error
	for _, name := range want {
		if s[name] == "" {
			errs = append(errs, fmt.Errorf("%s: no %s", where, name))
		}
	}
	for _, name := range credentialNames {
		if _, ok := s[name]; ok && !slices.Contains(want, name) && !slices.Contains(optional, name) {
			errs = append(errs, fmt.Errorf("%s: %s is not used here, want %s", where, name, strings.Join(want, ", ")))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// readPrivate reads a file. It refuses a file that anyone but its owner (this user or root) can
// read or write.
func readPrivate(path string) ([]byte, error) {
	// O_NONBLOCK, because without it opening a FIFO could block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: a symbolic link, want the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if m := info.Mode().Perm(); m&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %04o gives other users access to the credentials, want 0600 or 0400", path, m)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s: belongs to user %d, want this user or root", path, st.Uid)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxCredentials {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxCredentials)
	}
	return b, nil
}

// parseSecrets reads lines NAME=VALUE. A value ends at the end of the line and includes blanks.
// Empty lines and lines that begin with # are skipped. Errors show the line's number and none of
// its content.
func parseSecrets(b []byte) (secrets, error) {
	s := secrets{}
	var errs []error
	sc := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSuffix(sc.Text(), "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		_, twice := s[name]
		switch {
		case !ok || !slices.Contains(credentialNames, name):
			errs = append(errs, fmt.Errorf("line %d: want NAME=VALUE with NAME one of %s", n,
				strings.Join(credentialNames, ", ")))
		case twice:
			errs = append(errs, fmt.Errorf("line %d: %s is set twice", n, name))
		case value == "" || strings.ContainsRune(value, 0):
			errs = append(errs, fmt.Errorf("line %d: %s is empty or has a zero byte", n, name))
		default:
			s[name] = value
		}
	}
	if err := sc.Err(); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// hide replaces the secrets in the text of err by "[secret]". Libraries and servers repeat secrets
// in errors, plain or encoded.
func (s secrets) hide(err error) error {
	if err == nil {
		return nil
	}
	var forms []string
	for _, v := range s {
		quoted := strconv.Quote(v)
		forms = append(forms, v, quoted[1:len(quoted)-1], url.QueryEscape(v), url.PathEscape(v))
		if j, e := json.Marshal(v); e == nil {
			forms = append(forms, string(j[1:len(j)-1]))
		}
	}
	// Replace the longest first, because one secret may be the prefix of another.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	text := err.Error()
	for _, f := range forms {
		if f != "" {
			text = strings.ReplaceAll(text, f, "[secret]")
		}
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text, err}
}

// redactedError has the text without secrets. errors.Is finds the original error, but Unwrap does
// not return it.
type redactedError struct {
	text string
	err  error
}

func (h *redactedError) Error() string        { return h.text }
func (h *redactedError) Is(target error) bool { return errors.Is(h.err, target) }

// GoString makes %#v print the text without secrets, not err.
func (h *redactedError) GoString() string { return h.text }
