// SPDX-License-Identifier: Apache-2.0

// Package niclane contains only tests of the project's architecture. The command is in cmd/niclane;
// docs/architecture.md says what each folder contains.
package niclane
