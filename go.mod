module github.com/niclane/niclane

go 1.26
