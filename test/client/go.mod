module github.com/fairlead-dev/fairlead/test/client

go 1.26.0

require github.com/ngrok/ngrok-api-go/v7 v7.8.0
