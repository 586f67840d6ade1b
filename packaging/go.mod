module github.com/fairlead-dev/fairlead/packaging

go 1.26.0
