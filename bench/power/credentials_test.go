// SPDX-License-Identifier: Apache-2.0

package power

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/errtest"
)

func TestCredentialsFile(t *testing.T) {
	want := []string{user, password}
	for _, tt := range []struct {
		name, text, want string
		mode             os.FileMode
	}{
		{"fine", "# of the BMC\n\nuser=meter\npassword= with = and blanks \r\n", "", 0o600},
		{"read-only", "user=meter\npassword=x", "", 0o400},
		{"others read", "user=meter\npassword=" + simSecret,
			"mode 0604 gives other users access to the credentials, want 0600 or 0400", 0o604},
		{"group writes", "user=meter\npassword=" + simSecret, "mode 0620", 0o620},
		{"unknown name", "user=meter\npassword=x\npin=" + simSecret,
			"line 3: want NAME=VALUE with NAME one of user, password", 0o600},
		{"no equals sign", simSecret, "line 1: want NAME=VALUE", 0o600},
		{"twice", "user=meter\nuser=" + simSecret, "line 2: user is set twice", 0o600},
		{"empty", "user=\npassword=" + simSecret, "line 1: user is empty", 0o600},
		{"missing", "user=meter", "no password", 0o600},
		{"of no use", "user=meter\npassword=x\ncommunity=" + simSecret, "community is not used here", 0o600},
		{"large", strings.Repeat("#", 5000), "more than 4096 bytes", 0o600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c")
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil { // sets the mode, whatever the umask
				t.Fatal(err)
			}
			s, err := readSecrets(path, want, nil)
			if tt.want == "" {
				if err != nil || s[user] != "meter" || s[password] == "" {
					t.Errorf("%v, %d values", err, len(s))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), simSecret) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if s, _ := readSecrets(credentials(t, "user=u", "password= with blanks "), want,
		nil); s[password] != " with blanks " {
		t.Errorf("%q", s[password])
	}
}

func TestCredentialsElsewhere(t *testing.T) {
	dir := t.TempDir()
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(credentials(t, "user=u"), link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{link: "a symbolic link", fifo: "not a regular file",
		dir + "/none": "no such file"} {
		_, err := readSecrets(path, nil, nil)
		errtest.Says(t, path, err, want)
	}
	if os.Geteuid() == 0 {
		other := credentials(t, "user=u")
		if err := os.Chown(other, 12345, -1); err != nil {
			t.Fatal(err)
		}
		_, err := readSecrets(other, nil, nil)
		errtest.Says(t, "another user's", err, "belongs to user 12345")
	}
	t.Setenv("POWERTEST_USER", "meter")
	t.Setenv("POWERTEST_PASSWORD", simSecret)
	if s, err := readSecrets("env:POWERTEST", []string{user, password}, nil); err != nil || s[password] != simSecret {
		t.Errorf("from the environment: %v", err)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	s := secrets{user: "meter", password: simSecret}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cause := fmt.Errorf("login with %s: %w", simSecret, os.ErrPermission)
	hidden := s.hide(cause)
	all := fmt.Sprintf("%v %+v %#v %s %q %d %s %v %#v %+v", s, s, s, s, s, s, text, hidden, hidden, []any{hidden, s})
	if strings.Contains(all, simSecret) {
		t.Errorf("the password is in %s", all)
	}
	if !errors.Is(hidden, os.ErrPermission) {
		t.Error("the cause is lost")
	}
	// One secret is the prefix of another, and the error repeats them in encoded form.
	odd := secrets{password: `a"b c`, privacyPassword: `a"b cdef`}
	if got := odd.hide(errors.New(`a"b cdef, a\"b c, a%22b+c, a%22b%20c`)).Error(); got != "[secret], [secret], "+
		"[secret], [secret]" {
		t.Errorf("%s", got)
	}
	if other := errors.New("nothing to hide"); !errors.Is(s.hide(other), other) {
		t.Error("an error without secrets was changed")
	}
}

func FuzzParseSecrets(f *testing.F) {
	f.Add([]byte("user=a\npassword=b\n"))
	f.Add([]byte("# x\r\nprivacyPassword==\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSecrets(b)
		if err != nil {
			return
		}
		for name, v := range s {
			if v == "" || strings.ContainsAny(v, "\n\x00") || !strings.Contains(string(b), name+"="+v) {
				t.Errorf("%s=%q from %q", name, v, b)
			}
		}
	})
}

func FuzzPrintable(f *testing.F) {
	f.Add("APC\x1b[31m")
	f.Fuzz(func(t *testing.T, s string) {
		p := printable(s)
		if len(p) > maxText+len("…") || strings.ContainsAny(p, "\x00\x1b\r\n\x7f") {
			t.Errorf("%q", p)
		}
	})
}
