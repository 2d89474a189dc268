// SPDX-License-Identifier: Apache-2.0

// Package niclane holds nothing but the tests of the project's architecture.
// The command is in cmd/niclane; docs/architecture.md says where what lives.
package niclane
