# A job that takes its time. Leave it and come back: its output is kept from the first byte.
step=1
while [ "$step" -le "${STEPS:-10}" ]; do
  echo "step $step of ${STEPS:-10} at $(date +%T)"
  step=$((step + 1))
  sleep "${PAUSE:-1}"
done
echo 'result: 42' >result.txt
echo "done: vmux cp @last:result.txt ."
